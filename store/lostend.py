"""Noticing that a log has lost its end: what lay behind the last known entry may be gone as well.

The durable mark lags behind the log, so recovery takes whatever is not whole behind it for writes
that were never confirmed. That is wrong where the file itself was damaged there: a segment that is
shorter than what was durable in it, is not there at all, or holds other bytes than the last entry
of the checkpoint, may have lost entries that this replica confirmed. It must not vote as if it had
never had them. Nobody can tell how many there were, so the directory becomes another disk, by a new
incarnation: its owner is refilled, and counts again once it holds all that it may have confirmed.
"""

from __future__ import annotations

from store.checkpoint import Checkpoint
from store.commitlog import CommitLog
from store.entry import decode_entry
from store.entryindex import EntryIndex
from store.errors import CorruptEntryError, DamagedError
from store.layout import segment_start
from store.segments import Segment


def cut_short(log: CommitLog, floor: int) -> Segment | None:
    """The segment of the last byte below ``floor``, if it is shorter than that."""
    if floor <= log.first_position:
        return None
    segment = log.segments[segment_start(floor - 1, log.segment_size)]
    return segment if segment.zeroed_end < floor - segment.start else None


def fill(segment: Segment, floor: int) -> None:
    """Gives the segment its length back, with zeros, durably: it is told to be short only once."""
    segment.clear(segment.zeroed_end, floor - segment.start)
    segment.sync()
    segment.adopt()


def lost_end(log: CommitLog, index: EntryIndex, checkpoint: Checkpoint) -> DamagedError | None:
    """What is wrong where a log that ends with the last entry of the checkpoint should hold it.

    Raises :class:`~store.errors.DamagedError` where the entry index is damaged there.
    """
    if checkpoint.end_position <= log.first_position:
        return None
    row = index.row(checkpoint.index)
    segment = log.segments[segment_start(row.position, log.segment_size)]
    offset = row.position - segment.start
    try:
        found = decode_entry(memoryview(segment.read(row.size, offset)), 0, None)
        if (found.index, found.chain_crc) == (checkpoint.index, checkpoint.chain_crc):
            return None
    except CorruptEntryError:
        pass
    return DamagedError(
        segment.path,
        offset,
        f"here lay entry {checkpoint.index}, the last one of the checkpoint, "
        "and what came behind may be lost with it",
    )
