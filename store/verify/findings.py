"""The findings of a check: where, what was expected, what was found, what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from store.errors import DamagedError, UnreadableError

TEXT_MAX = 2000
UNKNOWN_REPLICA = "unknown"
"""The replica of a finding if nothing proves which replica is wrong."""

INCOMPLETE = "take the snapshot again into a new directory"

RESTORE = (
    "keep a copy of the node's data directory; then, with a majority of the other nodes up, remove "
    "it and start the node: the group refills it (dledger member replace GROUP NODE waits for "
    "that); a node without others is restored from a backup instead (dledger restore)"
)


class FindingKind(StrEnum):
    """The part of a replica that is wrong."""

    FORMAT = "format"
    """``state/format`` or ``manifest.json``: whose data this is."""
    VOTE = "vote"
    """``state/vote``: term and vote."""
    MARK = "mark"
    """``state/mark``: what of the log is durable and committed."""
    HELD = "held"
    """``state/held``: entries that other members hold."""
    CHECKPOINT = "checkpoint"
    """A checkpoint cannot be read, or contradicts the log."""
    SEGMENT = "segment"
    """A file of the commit log is missing, misplaced or of a wrong size."""
    PADDING = "padding"
    """The padding at the end of a segment."""
    ENTRY = "entry"
    """A log entry: header, place, CRC or chain."""
    BATCH = "batch"
    """The body of an entry contradicts itself: records, rows, runs."""
    QUEUE_OFFSET = "queue-offset"
    """A message does not have the offset that follows in its queue."""
    ENTRY_INDEX = "entry-index"
    """The entry index contradicts the log."""
    CONSUME_QUEUE = "consume-queue"
    """A ConsumeQueue contradicts the log."""
    KEY_INDEX = "key-index"
    """The key index contradicts the log."""
    DIVERGENCE = "divergence"
    """Replicas differ in entries that each knows to be committed."""
    DUPLICATE = "duplicate"
    """A message is in the log twice. Only ``--duplicates`` of the audit looks for it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or could not be read.

    * ``replica``: ``group/node``.
    * ``index_first`` to ``index_last``: the log entries concerned; ``None`` if there are none.
    * ``position``: a byte of the file ``path``.
    * ``expected``, ``found``, ``advice``: text for people.
    * ``majority``: if replicas differ, the majority that agrees against this one.
    * ``unread``: nothing is known to be wrong, but something could not be read.
    """

    kind: FindingKind
    replica: str
    index_first: int | None
    index_last: int | None
    path: str
    position: int
    expected: str
    found: str
    advice: str
    majority: tuple[str, ...] = ()
    unread: bool = False

    def __str__(self) -> str:
        return self.line(self.kind)

    def line(self, kind: str) -> str:
        """The finding as one line. ``kind`` is the name of its kind there."""
        if self.index_first is None:
            entries = ""
        elif self.index_first == self.index_last:
            entries = f" (entry {self.index_first})"
        else:
            entries = f" (entries {self.index_first} to {self.index_last})"
        return one_line(
            f"{self.replica}: {kind}: {self.path}, byte {self.position}{entries}: "
            f"expected {self.expected}, found {self.found}; {self.advice}"
        )

    def to_json(self) -> dict[str, object]:
        """The fields by name, for JSON."""
        return asdict(self)


def one_line(text: str) -> str:
    """The text in one line, with escapes. Names of files and nodes can be any bytes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def clipped(found: object) -> str:
    """Text of at most about :data:`TEXT_MAX` characters."""
    text = str(found)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


class FindingLog:
    """Collects the findings of one replica."""

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.findings: list[Finding] = []

    def add(  # noqa: PLR0917 - the order in which a finding is read
        self,
        kind: FindingKind,
        path: str,
        position: int,
        expected: object,
        found: object,
        advice: str = RESTORE,
        *,
        first: int | None = None,
        last: int | None = None,
        majority: tuple[str, ...] = (),
        unread: bool = False,
    ) -> None:
        """Adds a finding. ``last`` is ``first`` by default. Long texts are cut."""
        last = first if last is None else last
        texts = (clipped(expected), clipped(found), advice)
        self.findings.append(
            Finding(kind, self.replica, first, last, path, position, *texts, majority, unread)
        )

    def add_damage(
        self, kind: FindingKind, error: DamagedError, expected: str, advice: str = RESTORE
    ) -> None:
        """Adds a finding with the reason why a file could not be read as ``expected``."""
        unread = isinstance(error, UnreadableError)
        self.add(kind, error.path, error.position, expected, error.reason, advice, unread=unread)
