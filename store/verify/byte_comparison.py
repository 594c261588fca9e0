"""Compares the bytes of entries in replicas whose chain CRCs agree.

Equal chains leave one chance in 2^32 for each entry. This takes it away, at the price of reading
once more what has just been read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from store.io.filesystem import ReadableFileSystem
from store.log.layout import segment_start
from store.log.log_reader import LogReader, SegmentFiles
from store.verify.replica_report import ReplicaReport

READ_SIZE = 4 << 20


def differing_entries(
    fs: ReadableFileSystem, left: ReplicaReport, right: ReplicaReport
) -> Iterator[int]:
    """Entries that both know and that are not the same; a long one more than once."""
    low = max(left.first_index, right.first_index)
    high = min(left.known_index, right.known_index, left.first_index + len(left.ends) - 1)
    if low > high:
        return
    begin = left.positions[low - left.first_index]
    end = left.ends[high - left.first_index]
    while begin < end:
        stop = min(segment_start(begin, left.segment_size) + left.segment_size, end)
        stop = min(stop, begin + READ_SIZE)
        ours = read_position(fs, left, begin, stop - begin)
        theirs = read_position(fs, right, begin, stop - begin)
        if ours != theirs:
            for index, first, last in _entries_between(left, begin, stop, low, high):
                one = ours[first - begin : last - begin]
                other = theirs[first - begin : last - begin]
                if one != other and right.chain(index) is not None:
                    yield index
        begin = stop


def read_position(fs: ReadableFileSystem, report: ReplicaReport, position: int, size: int) -> bytes:
    """Bytes of a replica's log; fewer where its file ends, none where it is missing."""
    files = SegmentFiles(fs, report.directory, report.segment_size)
    try:
        return bytes(LogReader(files).read(position, size).data)
    finally:
        files.close()


def _entries_between(
    report: ReplicaReport, begin: int, stop: int, low: int, high: int
) -> Iterator[tuple[int, int, int]]:
    """ReadableFileSystem entries that overlap a range: index, and the positions of their part in
    it.
    """
    place = bisect_right(report.ends, begin, low - report.first_index)
    last = bisect_left(report.positions, stop, place, high + 1 - report.first_index)
    for number in range(place, last):
        index = number + report.first_index
        if report.chain(index) is not None:
            yield index, max(report.positions[number], begin), min(report.ends[number], stop)
