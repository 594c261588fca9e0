"""Scans the log from the newest checkpoint on.

Every entry is read and checked: header, index, position, order of terms, chain and body. The first
bytes that are no such entry are a hole. :mod:`store.recovery.recovery` decides what the hole means.
Behind the durable position it may be a torn tail (:mod:`store.recovery.torn_tail`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from store.errors import DamagedError
from store.log.commit_log import CommitLog
from store.log.entry import Entry, EntryKind
from store.log.entry_index import EntryIndex
from store.log.entry_row import ROW
from store.log.layout import parse_segment_name, segment_start
from store.log.log_reader import WINDOW_SIZE, Cursor, Hole
from store.log.segment import Segment
from store.state.checkpoint import Checkpoint
from store.state.hard_state import DurableMark
from store.state.replication_evidence_file import SavedEvidence

TAIL_BYTES_MAX = 16 << 20
FIRST_WINDOW_SIZE, WINDOW_GROWTH = 4096, 8
"""The first window is small: a scan runs after each entry that a peer sends to fill a hole, and the
next hole is often near."""


@dataclass(frozen=True, slots=True)
class RecoveredReplica:
    """What :meth:`store.replica.ReplicaStore.open` found. Everything in it is durable.

    * ``commit_index``: a lower bound; -1 if no entry is known to be committed.
    * ``term_starts``: (term, first index), in order.
    * ``tail``: the newest entries after the checkpoint: all after ``commit_index``, and about
      16 MiB of those up to it.
    * ``tail_base``: end position and chain CRC of the entry before the first one in ``tail``.
    * ``lost``: see :attr:`store.recovery.recovery.Recovery.lost`.
    * ``configurations``: the configuration entries after the checkpoint.
    * ``incarnation``: that of the directory.
    * ``held``: the saved replication evidence.
    * ``cut_entries``: first and last entry of each segment that lacks bytes, except the last one.
    """

    term: int
    vote: str
    first_index: int
    last_index: int
    end_position: int
    last_chain_crc: int
    term_starts: list[tuple[int, int]]
    commit_index: int
    checkpoint: Checkpoint | None
    torn_bytes_cut: int
    tail: list[Entry]
    tail_base: tuple[int, int]
    lost: list[DamagedError]
    incarnation: int = 0
    configurations: list[Entry] = field(default_factory=list)
    held: tuple[SavedEvidence, ...] = ()
    cut_entries: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class LogScan:
    """How far a scan has come: the last intact entry, and what was found up to it."""

    last_index: int
    last_term: int
    end: int
    chain_crc: int | None
    term_starts: list[tuple[int, int]] = field(default_factory=list)
    rows: bytearray = field(default_factory=bytearray)
    commit_index: int = -1
    tail: deque[Entry] = field(default_factory=deque)
    tail_base: tuple[int, int] = (0, 0)
    tail_bytes: int = 0
    configurations: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Moves the scan behind the next intact entry."""
        size = len(entry.data)
        self.rows += ROW.pack(entry.kind, entry.position, size, entry.index, entry.term)
        if entry.term != self.last_term:
            self.term_starts.append((entry.term, entry.index))
            self.last_term = entry.term
        self.last_index = entry.index
        self.end = entry.position + size
        self.chain_crc = entry.chain_crc
        if entry.kind is EntryKind.CONFIGURATION:
            self.configurations.append(entry)
        self.tail.append(entry)
        self.tail_bytes += size
        # Entries that may still be truncated stay in memory: Raft drops them without reading the
        # disk.
        while self.tail_bytes > TAIL_BYTES_MAX and self.tail[0].index <= self.commit_index:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        oldest = self.tail.popleft()
        self.tail_base = (oldest.end, oldest.chain_crc)
        self.tail_bytes -= oldest.size


def adopt_segments(log: CommitLog, names: list[str]) -> list[Segment]:
    """Adds the segment files that belong to the log to its table; returns the expired ones.

    The log's first position is durable before the first expired file is removed. So files below it
    are left from a crash. Raises :class:`~store.errors.DamagedError` for a misplaced file.
    """
    expired = []
    for name in names:
        start = parse_segment_name(name)
        if start is None:
            continue
        segment = log.new_segment(start)
        if start % segment.size:
            raise DamagedError(segment.path, 0, f"no segment of {segment.size} bytes begins there")
        if start + segment.size <= log.first_position:
            expired.append(segment)
        else:
            segment.adopt()
            log.segments[start] = segment
    return expired


def missing_segments(log: CommitLog, durable_position: int) -> list[Segment]:
    """The segments below ``durable_position`` that have no file."""
    first = segment_start(log.first_position, log.segment_size)
    starts = range(first, durable_position, log.segment_size)
    return [log.new_segment(start) for start in starts if start not in log.segments]


def start_of_scan(checkpoint: Checkpoint | None, index: EntryIndex, mark: DurableMark) -> LogScan:
    """A scan that begins behind the checkpoint.

    If the entry index does not agree with the checkpoint, it must be rebuilt, and the scan begins
    at the first entry.
    """
    # If older entries have expired, the chain CRC before the first entry is unknown. The chain then
    # starts with that entry.
    chain_crc = 0 if mark.first_index == 0 else None
    found = LogScan(mark.first_index - 1, -1, mark.first_position, chain_crc)
    found.commit_index = mark.commit_index
    if checkpoint is not None:
        found.commit_index = max(mark.commit_index, checkpoint.index)
        try:
            index.check_files()
            agrees = index.row(checkpoint.index).end == checkpoint.end_position
        except DamagedError:
            agrees = False
        if not agrees:
            index.forget_files()
        else:
            found.last_index, found.last_term = checkpoint.index, checkpoint.term
            found.end, found.chain_crc = checkpoint.end_position, checkpoint.chain_crc
    found.tail_base = (found.end, found.chain_crc or 0)
    return found


def scan(
    log: CommitLog, found: LogScan, mark: DurableMark, go_on: Callable[[], None] = lambda: None
) -> Hole:
    """Reads the log behind ``found``, up to the next hole, and returns the hole.

    ``go_on`` is called before each window, and ends the scan by raising. Raises
    :class:`~store.errors.DamagedError` if the entries are not those that ``mark`` names.
    """
    cursor = Cursor(
        found.last_index + 1, found.end, found.chain_crc, found.last_term, end=found.end
    )
    size = FIRST_WINDOW_SIZE
    while True:
        go_on()
        window = log.reader.window(cursor, size=size)
        size = min(size * WINDOW_GROWTH, WINDOW_SIZE)
        for entry in window.entries:
            found.add(entry)
            if entry.position < mark.position <= found.end:
                _check_mark(found, mark, log, entry.position)
        log.synced_end = found.end  # nobody writes meanwhile, so files below may be closed
        if window.hole is not None:
            return window.hole


def _check_mark(found: LogScan, mark: DurableMark, log: CommitLog, position: int) -> None:
    """The entry that reaches the mark must end there, and must be the one that it names."""
    expected = (mark.index, mark.position, mark.chain_crc)
    actual = (found.last_index, found.end, found.chain_crc)
    if actual != expected:
        raise DamagedError(
            *log.locate(position),
            "not the entry that the durable mark names (index, end position, chain CRC): "
            f"expected {expected}, found {actual}",
        )
