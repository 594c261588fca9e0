"""Makes durable what a scan of the log found, and cuts the torn tail behind it.

A torn tail is zeroed, and later segments are removed.

Entries behind the durable position may be in the page cache only. If a process died because a sync
failed, the kernel may treat those pages as clean although the disk lacks them. Then another sync
would succeed without a write ("Can Applications Recover from fsync Failures?", ATC '20). So these
entries are written again, over themselves, and synced before they count. The bytes of the next
entry get zeros. Otherwise an entry that a truncation dropped could come back.
"""

from __future__ import annotations

from store.io.filesystem import BLOCK_SIZE
from store.log.commit_log import CommitLog
from store.log.layout import segment_start
from store.log.log_reader import WINDOW_SIZE, HoleReason
from store.log.segment import Segment

# A torn write goes no further beyond the end than what was in flight. Bytes behind this many zeros
# could not pass for an entry anyway, because they do not continue the chain.
TORN_REACH = 8 << 20
END_ZEROS = 4096
_ZERO_BLOCK = bytes(4096)


def clean_tail(log: CommitLog, end: int, durable_position: int) -> int:
    """Makes the log end at ``end`` on disk: what is below is durable, and a torn tail is cut.

    Returns how many bytes of the torn tail were cut.
    """
    log.end = log.synced_end = end
    current = segment_start(end, log.segment_size)
    torn = 0
    removed = False
    for segment in list(log.segments.values()):
        if segment.start < current:
            continue
        begin = max(end - segment.start, 0)
        remains = _remains(log, segment, begin)
        torn += max(remains - begin, 0)
        if segment.start == current:
            segment.zero_unreadable(begin, max(remains, min(begin + END_ZEROS, segment.zeroed_end)))
        elif remains or segment.start > current + log.segment_size:
            log.remove_segment(segment)
            removed = True
    for segment in log.segments.values():
        if segment.start + segment.size > durable_position:
            _write_again(log, segment, durable_position, end)
            segment.sync()
            segment.close()
    if removed:
        log.sync_directory()
    return torn


def _remains(log: CommitLog, segment: Segment, begin: int) -> int:
    """The offset in the segment behind the last byte that is not zero, as far as torn writes reach.

    A byte that the disk cannot read does not count as zero.
    """
    last = begin
    offset = begin
    while offset < segment.zeroed_end and offset - last < TORN_REACH:
        wanted = min(WINDOW_SIZE, segment.zeroed_end - offset)
        data, missing = log.reader.read(segment.start + offset, wanted)
        kept = nonzero_length(bytes(data))
        if kept:
            last = offset + kept
        offset += len(data)
        if missing is HoleReason.EIO:
            offset = last = min(offset - offset % BLOCK_SIZE + BLOCK_SIZE, segment.zeroed_end)
        elif not data:
            offset += WINDOW_SIZE
    return last


def nonzero_length(data: bytes) -> int:
    """The length of ``data`` without the zeros at its end.

    Each start reads the zeros ahead of the log. Comparing whole blocks takes a hundredth of the
    time of stripping byte by byte.
    """
    end = len(data)
    while data.endswith(_ZERO_BLOCK, 0, end):
        end -= len(_ZERO_BLOCK)
    begin = max(end - len(_ZERO_BLOCK), 0)
    return begin + len(data[begin:end].rstrip(b"\0"))


def _write_again(log: CommitLog, segment: Segment, durable_position: int, end: int) -> None:
    offset = max(durable_position - segment.start, 0)
    stop = min(end - segment.start, segment.zeroed_end)
    while offset < stop:
        data, missing = log.reader.read(segment.start + offset, min(WINDOW_SIZE, stop - offset))
        if data:
            segment.write(data, offset)
        offset += len(data)
        if missing is HoleReason.EIO:
            # All entries were read, so this block lies behind the padding of a segment.
            offset += BLOCK_SIZE - offset % BLOCK_SIZE
