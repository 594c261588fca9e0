"""Recognises a lost suffix: the log has lost its end, and confirmed entries may be gone.

The durable mark lags behind the log. So recovery treats damaged entries behind the mark as writes
that were never confirmed. That is wrong if the file itself was damaged: a segment is shorter than
its durable part, is missing, cannot be read, holds other bytes than the last durable entry, or is
another segment's. Then entries may be lost that this replica confirmed. It must not vote as if it
had never had them, and their number is unknown. So the directory gets a new incarnation, as if it
were another disk. The node is refilled. It counts again once it holds everything that it may have
confirmed.
"""

from __future__ import annotations

from store.errors import CorruptEntryError, DamagedError
from store.log.commit_log import CommitLog
from store.log.entry import PADDING_SIZE, Entry, check_chain
from store.log.entry_index import EntryIndex
from store.log.entry_reader import index_at
from store.log.layout import segment_start
from store.log.log_reader import Hole
from store.log.segment import Segment
from store.state.checkpoint import Checkpoint


def short_segment(log: CommitLog, durable_position: int) -> Segment | None:
    """The segment of the last byte below ``durable_position``, if it is shorter than that."""
    if durable_position <= log.first_position:
        return None
    segment = log.segments[segment_start(durable_position - 1, log.segment_size)]
    return segment if segment.zeroed_end < durable_position - segment.start else None


def cut_entries(log: CommitLog, index: EntryIndex, last_index: int) -> tuple[tuple[int, int], ...]:
    """First and last entry of each segment that lacks bytes, except the last segment.

    Only file sizes are compared: entries below a checkpoint are not read when the log is opened. A
    segment that was closed before all of it was zeroed, or that a refill wrote, is shorter than
    others and lacks nothing. If the entry index does not say which entries a segment has, the
    answer is the whole log.
    """
    size, cut = log.segment_size, []
    for start in sorted(log.segments):
        end = start + log.segments[start].zeroed_end
        if start >= segment_start(log.end, size) or end >= start + size:
            continue
        try:
            first = index_at(index, start, last_index)
            last = max(index_at(index, start + size, last_index) - 1, first)
            row = index.row(last)
        except DamagedError:
            return ((index.first_index, last_index),)
        if not (start <= row.position and row.end + PADDING_SIZE <= end):
            cut.append((first, last))
    return tuple(cut)


def restore_length(segment: Segment, durable_position: int) -> None:
    """Durably extends the segment to its length with zeros, so that it is reported only once."""
    segment.zero_unreadable(segment.zeroed_end, durable_position - segment.start)
    segment.sync()
    segment.adopt()


def lost_suffix(log: CommitLog, index: EntryIndex, checkpoint: Checkpoint) -> DamagedError | None:
    """What is wrong with the last entry of the log, which is also that of the checkpoint, if it is
    damaged.

    Raises :class:`~store.errors.DamagedError` if the entry index is damaged there.
    """
    if checkpoint.end_position <= log.first_position:
        return None
    row = index.row(checkpoint.index)
    found = log.reader.entry_at(row.position)
    if isinstance(found, Entry) and (found.index, found.chain_crc) == (
        checkpoint.index,
        checkpoint.chain_crc,
    ):
        return None
    return DamagedError(
        *log.locate(row.position),
        f"here lay entry {checkpoint.index}, the last one of the checkpoint, "
        "and what came behind may be lost with it",
    )


def unreadable(log: CommitLog, position: int) -> DamagedError:
    """The damage at ``position``, where a scan ended because the disk cannot read the bytes."""
    path, byte = log.locate(position)
    what = "the disk cannot read what was here, and entries may be lost with it"
    return DamagedError(path, byte, what)


def misplaced(log: CommitLog, position: int) -> DamagedError | None:
    """The damage, if a scan ended at ``position`` and an entry of another segment is there.

    The entry may also be at the start of a later segment. A torn write does not leave such bytes.
    """
    own = segment_start(position, log.segment_size)
    for at in (position, *sorted(start for start in log.segments if start > own)):
        found = _whole_entry(log, at)
        if found is not None and found.position != at:
            return DamagedError(
                *log.locate(at),
                f"here stands entry {found.index}, whose place is {found.position}, "
                "and what was here may be lost",
            )
    return None


def displaced(log: CommitLog, position: int, durable_position: int) -> bool:
    """Whether an entry at ``position``, below ``durable_position``, has its own place behind it."""
    found = _whole_entry(log, position)
    return found is not None and found.position >= durable_position


def _whole_entry(log: CommitLog, position: int) -> Entry | None:
    """The entry at ``position``, if its own position is at the same offset of some segment.

    Half a header may look like an empty entry at position 0, because its position is not written
    yet. But it does not have the chain CRC of entry 0.
    """
    found = log.reader.entry_at(position)
    if isinstance(found, Hole) or not found.chain_crc:
        return None
    if found.position == 0 and not _begins_a_log(found):
        return None
    return found if (found.position - position) % log.segment_size == 0 else None


def _begins_a_log(entry: Entry) -> bool:
    try:
        check_chain(entry, 0)
    except CorruptEntryError:
        return False
    return entry.index == 0
