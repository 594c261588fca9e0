"""Recovery: finding the end of the log after any crash, and telling a torn tail from damage.

From the newest checkpoint on, every entry is read and checked: header, index, position, order of
terms, chain and body. The first bytes that are no such entry end the log. What that means depends
on where they lie:

* Below the *durable_position* (the durable mark, or the checkpoint if that is higher) the bytes
  were known to
  be on stable storage, and perhaps counted by a leader. They are damage: reported, never cut.
* At or above the durable_position they are the torn tail of writes whose sync never returned. They
  were
  never acknowledged; they are zeroed, and later segments removed. But where the disk cannot read
  them, no write that was torn did that: they may have been confirmed, and are lost
  (:mod:`store.recovery.lost_suffix`).

What recovery keeps above the durable_position may live only in the page cache: if the process died
because a sync failed, the kernel may hold those pages as clean although the disk lacks them, and
another sync would say yes without writing ("Can Applications Recover from fsync Failures?", ATC
'20). So they are written once more, over themselves, and synced before anyone may count on them;
and so are zeros where the next entry would begin, or one that a truncation dropped could come back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from store.errors import (
    CorruptEntryError,
    DamagedError,
    DamagedLogError,
    MissingSegmentError,
)
from store.io.filesystem import BLOCK_SIZE
from store.log.commit_log import CommitLog
from store.log.entry import (
    HEADER_SIZE,
    PADDING,
    PADDING_MAGIC,
    PADDING_SIZE,
    Entry,
    EntryKind,
    decode_entry,
)
from store.log.entry_index import ROW
from store.log.layout import next_position, parse_segment_name, segment_start
from store.log.segment import Segment
from store.state.checkpoint import Checkpoint
from store.state.hard_state import DurableMark
from store.state.replication_evidence_file import SavedEvidence

READ_SIZE = 4 << 20
TAIL_BYTES_MAX = 16 << 20
# Torn writes reach no further beyond the end than what was in flight. Whatever lies behind so
# many zeros could not be taken for an entry anyway, because it does not continue the chain.
TORN_REACH = 8 << 20
END_ZEROS = 4096
_ZERO_BLOCK = bytes(4096)


@dataclass(frozen=True, slots=True)
class RecoveredReplica:
    """What :meth:`store.replica.ReplicaStore.open` found. Everything in it is durable.

    ``commit_index`` is a lower bound, -1 where nothing is known to be committed. ``term_starts``
    lists (term, first index) in order. ``tail`` holds the newest entries after the checkpoint:
    all that ``commit_index`` does not cover, and about 16 MiB of those that it does; ``tail_base``
    is the end position and chain CRC of the entry before the first of them. Where
    ``damaged_checkpoints`` names some, an older one was used. ``configurations`` are the entries of
    that kind after the checkpoint, and ``incarnation`` is the number of the directory. ``held`` is
    what was saved of the disks of others. ``short_segments`` begin where they should, have another
    behind them, and no longer, or not yet again, all of their bytes.
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
    damaged_checkpoints: list[DamagedError]
    incarnation: int = 0
    configurations: list[Entry] = field(default_factory=list)
    held: tuple[SavedEvidence, ...] = ()
    short_segments: tuple[int, ...] = ()


@dataclass(slots=True)
class LogScan:
    """Where a scan stands: the last good entry, and what was learnt on the way there."""

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
    stop_position: int = 0
    stop_reason: str = ""
    unreadable: bool = False
    """Whether it stopped at an entry of which the disk cannot read all."""

    def take(self, entry: Entry) -> None:
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
        # What may still be truncated stays whole: Raft cuts it without reading the disk.
        while self.tail_bytes > TAIL_BYTES_MAX and self.tail[0].index <= self.commit_index:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        oldest = self.tail.popleft()
        self.tail_base = (oldest.end, oldest.chain_crc)
        self.tail_bytes -= oldest.size

    def stop(self, position: int, reason: str) -> None:
        self.stop_position = position
        self.stop_reason = reason

    def stop_unreadable(self, position: int) -> None:
        self.stop(position, "the disk cannot read it")
        self.unreadable = True


def adopt_segments(log: CommitLog, names: list[str]) -> list[Segment]:
    """Puts the segment files that belong to the log into its table; returns the expired ones.

    The log's first position is durable before the first expired file is removed, so files below
    it are what a crash left over. Raises :class:`~store.errors.DamagedError` for a misplaced file.
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


def check_segments(log: CommitLog, durable_position: int) -> None:
    """Raises :class:`~store.errors.DamagedError` where a segment below the durable_position is
    missing.
    """
    size = log.segment_size
    start = segment_start(log.first_position, size)
    while start < durable_position:
        if start not in log.segments:
            raise MissingSegmentError(log.locate(start)[0], 0, "the segment file is missing")
        start += size


def scan(log: CommitLog, found: LogScan, mark: DurableMark, durable_position: int) -> None:
    """Reads the log on from where ``found`` stands, to the last entry that is whole.

    Raises :class:`~store.errors.DamagedError` where that is below ``durable_position``, or where
    the entries are not those that ``mark`` vouches for.
    """
    position = found.end
    while True:
        segment = log.segments.get(segment_start(position, log.segment_size))
        if segment is None:
            found.stop(position, "the segment file is missing")
            break
        following = _scan_segment(segment, position, found, mark)
        if following is None:
            break
        position = following
    if found.end < durable_position:
        path, byte = log.locate(found.stop_position)
        damage = DamagedLogError(
            path,
            byte,
            f"{found.stop_reason}; all below position {durable_position} was durable, "
            f"and entry {found.last_index + 1} is not whole",
        )
        damage.index, damage.end = found.last_index + 1, found.end
        damage.chain_crc = found.chain_crc
        damage.commit_index = found.commit_index
        damage.known_index = max(found.commit_index, mark.index)
        damage.durable_position = durable_position
        raise damage


def _scan_segment(segment: Segment, position: int, found: LogScan, mark: DurableMark) -> int | None:
    """Takes the entries of one segment. Returns where the next begins if padding closes this."""
    size_max = segment.size - PADDING_SIZE
    offset = position - segment.start
    view = memoryview(b"")
    view_start = offset
    unreadable = False  # what follows the view
    while True:
        at = offset - view_start
        available = len(view) - at
        if available < HEADER_SIZE:
            data, unreadable = segment.read_until_unreadable(READ_SIZE, offset)
            view, view_start, at = memoryview(data), offset, 0
            available = len(view)
            if available < PADDING_SIZE and unreadable:
                found.stop_unreadable(segment.start + offset)
                return None
            if available < PADDING_SIZE:
                found.stop(segment.start + offset, "the segment file ends")
                return None
        magic, size = PADDING.unpack_from(view, at)
        if magic == PADDING_MAGIC:
            if size != segment.size - offset:
                found.stop(segment.start + offset, f"padding states {size} bytes")
                return None
            return segment.start + segment.size
        if available < size <= size_max - offset:
            data, unreadable = segment.read_until_unreadable(max(size, READ_SIZE), offset)
            view, view_start, at = memoryview(data), offset, 0
            available = len(view)
        if unreadable and available < max(size, HEADER_SIZE):
            found.stop_unreadable(segment.start + offset)
            return None
        try:
            entry = decode_entry(view, at, found.chain_crc)
            _check_place(entry, segment, offset, found)
        except CorruptEntryError as error:
            found.stop(segment.start + offset, str(error))
            return None
        found.take(entry)
        if entry.position < mark.position <= found.end:
            _check_mark(found, mark, segment, offset)
        offset += size


def _check_place(entry: Entry, segment: Segment, offset: int, found: LogScan) -> None:
    if entry.index != found.last_index + 1:
        raise CorruptEntryError("index", expected=found.last_index + 1, found=entry.index)
    if entry.term < found.last_term:
        raise CorruptEntryError("term falls", expected=found.last_term, found=entry.term)
    size = len(entry.data)
    if size + PADDING_SIZE > segment.size - offset:
        raise CorruptEntryError("entry leaves no room for padding in its segment")
    position = next_position(found.end, size, segment.size)
    if not entry.position == segment.start + offset == position:
        raise CorruptEntryError("position", expected=position, found=entry.position)


def _check_mark(found: LogScan, mark: DurableMark, segment: Segment, offset: int) -> None:
    """The entry that reaches the mark must end there and be the one that it was set on."""
    expected = (mark.index, mark.position, mark.chain_crc)
    actual = (found.last_index, found.end, found.chain_crc)
    if actual != expected:
        raise DamagedError(
            segment.path,
            offset,
            "not the entry that the durable mark names (index, end position, chain CRC): "
            f"expected {expected}, found {actual}",
        )


def clean_tail(log: CommitLog, end: int, durable_position: int) -> int:
    """Makes the log end at ``end`` on disk: all below durable, and no remains of writes behind.

    Returns how many bytes of a torn tail were cut.
    """
    log.end = log.synced_end = end
    current = segment_start(end, log.segment_size)
    torn = 0
    removed = False
    for segment in list(log.segments.values()):
        if segment.start < current:
            continue
        begin = max(end - segment.start, 0)
        remains = _remains(segment, begin)
        torn += max(remains - begin, 0)
        if segment.start == current:
            segment.zero_unreadable(begin, max(remains, min(begin + END_ZEROS, segment.zeroed_end)))
        elif remains or segment.start > current + log.segment_size:
            log.remove_segment(segment)
            removed = True
    for segment in log.segments.values():
        if segment.start + segment.size > durable_position:
            _write_again(segment, durable_position, end)
            segment.sync()
    if removed:
        log.sync_directory()
    return torn


def _remains(segment: Segment, begin: int) -> int:
    """The offset behind the last byte that is not zero, looking no further than torn writes go.

    What the disk cannot read is none either.
    """
    last = begin
    offset = begin
    while offset < segment.zeroed_end and offset - last < TORN_REACH:
        wanted = min(READ_SIZE, segment.zeroed_end - offset)
        data, unreadable = segment.read_until_unreadable(wanted, offset)
        kept = nonzero_length(data)
        if kept:
            last = offset + kept
        offset += len(data)
        if unreadable:
            offset = last = min(offset - offset % BLOCK_SIZE + BLOCK_SIZE, segment.zeroed_end)
        elif not data:
            offset += READ_SIZE
    return last


def nonzero_length(data: bytes) -> int:
    """How many bytes of ``data`` are left without the zeros at its end.

    What is prepared ahead is looked through at each start: comparing whole blocks takes a hundredth
    of the time of stripping byte by byte.
    """
    end = len(data)
    while data.endswith(_ZERO_BLOCK, 0, end):
        end -= len(_ZERO_BLOCK)
    begin = max(end - len(_ZERO_BLOCK), 0)
    return begin + len(data[begin:end].rstrip(b"\0"))


def _write_again(segment: Segment, durable_position: int, end: int) -> None:
    offset = max(durable_position - segment.start, 0)
    stop = min(end - segment.start, segment.zeroed_end)
    while offset < stop:
        data, unreadable = segment.read_until_unreadable(min(READ_SIZE, stop - offset), offset)
        if data:
            segment.write(data, offset)
        offset += len(data)
        if unreadable:  # behind the padding, where nothing means anything: entries were all read
            offset += BLOCK_SIZE - offset % BLOCK_SIZE
