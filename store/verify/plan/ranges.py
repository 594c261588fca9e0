"""The ranges of a check, and the results of each.

A range has a first and a last index. A replica takes part in it with all of its entries or not at
all. A range needs no other, so ranges are checked in any order and anywhere. What spans ranges
(offsets of queues, statements of a checkpoint about all of the log) is checked at the end, from the
results of all ranges.

Everything here can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from store.state.format_file import Identity
from store.verify.files.directory_listing import Listing, without_queues
from store.verify.findings import Finding
from store.verify.state.broker_state import BrokerEffects
from store.verify.state.checkpoint_digest import StateDigest
from store.verify.state.state_files import StateFiles

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class Border:
    """The beginning of a range in one replica, just behind entry ``index - 1``.

    ``position`` is the end of that entry. ``chain`` and ``term`` are its own, ``None`` and -1 if
    the log begins here.
    """

    index: int
    position: int
    chain: int | None
    term: int


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One replica by its small files, without the state of the broker."""

    directory: str
    state: StateFiles

    @property
    def identity(self) -> Identity:
        return self.state.identity

    @property
    def name(self) -> str:
        """``group/node``."""
        return f"{self.identity.group}/{self.identity.node}"

    @property
    def first_index(self) -> int:
        return self.state.mark.first_index

    @property
    def known_index(self) -> int:
        """The last entry that the replica knows to be committed."""
        return self.state.commit_index

    @property
    def known_end(self) -> int | None:
        """Where that entry ends, if the small files say so."""
        state = self.state
        return state.durable_position if state.durable_index == state.commit_index else None

    @property
    def checkpoint_index(self) -> int:
        return self.state.checkpoint_index

    @property
    def digests(self) -> list[StateDigest]:
        """Of all checkpoints that can be read."""
        return [saved.digest for saved in self.state.checkpoints]


@dataclass(frozen=True, slots=True)
class RangePlan:
    """A range. ``last_index`` is ``None`` behind the entries known to be committed.

    ``borders`` has a place for each replica of the group, ``None`` if it takes no part.
    ``diverged`` are the places of replicas that the majority contradicts before the range.
    """

    number: int
    first_index: int
    last_index: int | None
    size_bytes: int
    borders: tuple[Border | None, ...]
    diverged: frozenset[int] = frozenset()

    @property
    def members(self) -> list[int]:
        """The places of the replicas that take part."""
        return [place for place, border in enumerate(self.borders) if border is not None]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The replicas of one group and the ranges over them, in order.

    ``contradicting`` are the places of replicas whose own mark, checkpoints or manifest contradict
    their log.
    """

    group: str
    segment_size: int
    replicas: tuple[ReplicaPlan, ...]
    ranges: tuple[RangePlan, ...]
    contradicting: frozenset[int] = frozenset()
    listing: Listing = field(default_factory=dict)
    """The directories of all replicas."""

    def for_ranges(self) -> GroupPlan:
        """The part that the check of a range needs. Its size does not depend on the queues."""
        return replace(
            self,
            replicas=tuple(_without_queues(replica) for replica in self.replicas),
            listing=without_queues(self.listing),
        )

    def range_end(self, plan: RangePlan, place: int) -> int | None:
        """The end of a replica's part of a range, ``None`` if only the log can tell."""
        for other in self.ranges[plan.number + 1 :]:
            border = other.borders[place]
            if border is not None:
                return border.position
        replica = self.replicas[place]
        return replica.known_end if plan.last_index == replica.known_index else None


def _without_queues(replica: ReplicaPlan) -> ReplicaPlan:
    checkpoints = [
        saved
        if saved.machine is None
        else replace(saved, machine=saved.machine._replace(queues=[]))
        for saved in replica.state.checkpoints
    ]
    return replace(replica, state=replace(replica.state, checkpoints=checkpoints, tails={}))


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The plans of all groups, and findings about small files."""

    groups: tuple[GroupPlan, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class WrongRows:
    """Rows of one ConsumeQueue file that follow each other and differ from the log.

    ``expected`` and ``found`` are the first of them.
    """

    path: str
    byte: int
    index_first: int
    index_last: int
    offset_first: int
    offset_last: int
    expected: bytes
    found: bytes

    def add_to(self, wrong: list[WrongRows]) -> None:
        """Adds these to the wrong rows of a queue, as one with the last ones if they follow."""
        last = wrong[-1] if wrong else None
        if last is None or last.path != self.path or last.offset_last != self.offset_first - 1:
            wrong.append(self)
        else:
            wrong[-1] = replace(last, offset_last=self.offset_last, index_last=self.index_last)


class MissingKeys(NamedTuple):
    """Key rows of the log that no file has: the first entry, the last entry, and the position of
    its record."""

    index_first: int
    index_last: int
    position: int

    def behind(self, before: MissingKeys | None) -> MissingKeys:
        """These and those of earlier entries as one."""
        return self if before is None else self._replace(index_first=before.index_first)


class RowsDigest(NamedTuple):
    """Rows of one queue in the log, from ``first_offset`` to before ``end_offset``.

    ``crcs``: CRC32C and CRC-32 of all their bytes.
    """

    first_offset: int
    end_offset: int
    crcs: tuple[int, int]


class KeysDigest(NamedTuple):
    """Key rows of one range that belong to the file named by ``start``.

    ``total`` is the sum of a number for each row, modulo 2^64, so their order does not count.
    """

    start: int
    rows: int
    total: int


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """The messages of one queue within a range of one replica.

    ``first_known``: no unreadable entry of the range came before. ``end_known``: none came behind.
    ``begin`` is the first offset that is neither deleted nor expired, if the range has it.
    """

    key: QueueKey
    first_offset: int
    first_known: bool
    index: int
    position: int
    begin: int | None
    end: int
    end_known: bool
    covered_end: int | None
    digests: tuple[RowsDigest, ...]


@dataclass(frozen=True, slots=True)
class RangeQueues:
    """What a range tells about ConsumeQueues. ``emptied``: topics deleted in it. ``trimmed``: where
    queues begin by the retention of their topics."""

    spans: tuple[QueueSpan, ...] = ()
    emptied: frozenset[str] = frozenset()
    lost: bool = False
    trimmed: tuple[tuple[QueueKey, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RangeKeys:
    """What a range tells about the key index."""

    missing: MissingKeys | None = None
    expired_position: int = 0
    digests: tuple[KeysDigest, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeState:
    """What a range that the checkpoint covers tells about the state.

    ``times`` has by segment the store time of the newest message up to its end, ``None`` if that
    is in an earlier range. ``last_ms`` is the store time of the last message. ``configuration`` is
    the body of the last configuration entry.
    """

    times: tuple[tuple[int, int | None], ...] = ()
    last_ms: int | None = None
    configuration: bytes | None = None
    lost: bool = False
    effects: BrokerEffects = field(default_factory=BrokerEffects)


class ProvedCheckpoint(NamedTuple):
    """The voters' reports of their states after the entry ``point``
    (:mod:`store.state.state_digests`). The checkpoint of the entry ``checkpoint`` must fit them.
    """

    checkpoint: int
    point: int
    reports: bytes


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """One replica's part of a range."""

    place: int
    last_index: int
    last_term: int
    end_position: int
    messages: int
    queues: RangeQueues
    keys: RangeKeys
    state: RangeState | None = None
    """``None`` if the checkpoint does not cover the range."""
    proofs: tuple[ProvedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The result of the check of one range.

    ``agreement`` has a word for each replica of the group: ``same``, ``differs`` (from the
    majority, or from the others without one), ``damaged``, or ``behind`` if it takes no part.
    ``counts`` are messages by topic and store time in minutes since 1970.
    """

    number: int
    first_index: int
    last_index: int
    findings: tuple[Finding, ...]
    entries: int
    messages: int
    bytes_read: int
    agreement: tuple[str, ...]
    parts: tuple[ReplicaRange, ...]
    counts: dict[tuple[str, int], int] = field(default_factory=dict)
