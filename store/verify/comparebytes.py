"""Compares the bytes of entries in replicas whose chain CRCs agree.

Equal chains leave one chance in 2^32 for each entry. This takes it away, at the price of reading
once more what has just been read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from store.filesystem import FileSystem
from store.layout import segment_name, segment_start
from store.verify.ranges import GroupPlan, RangePlan
from store.verify.replica import ReplicaReport

READ_SIZE = 4 << 20
PIECE_SIZE = 256 << 10


def have_same_bytes(fs: FileSystem, group: GroupPlan, plan: RangePlan) -> bool:
    """Whether two or more replicas take part in a range and hold it byte by byte alike."""
    borders = [(place, border) for place, border in enumerate(plan.borders) if border is not None]
    (first, start), *others = borders
    end = group.range_end(plan, first)
    if plan.diverged or not others or end is None or end < start.position:
        return False
    if any(border != start or group.range_end(plan, place) != end for place, border in others):
        return False
    directories = [group.replicas[place].directory for place, _border in borders]
    begin = start.position
    while begin < end:
        segment = segment_start(begin, group.segment_size)
        stop = min(segment + group.segment_size, end)
        paths = [f"{directory}/commitlog/{segment_name(segment)}" for directory in directories]
        if not _are_equal(fs, paths, begin - segment, stop - segment):
            return False
        begin = stop
    return True


def _are_equal(fs: FileSystem, paths: Sequence[str], begin: int, end: int) -> bool:
    """Compares a part of files, in pieces that stay in the processor's cache."""
    with ExitStack() as files:
        opened = []
        for path in paths:
            try:
                file = fs.open(path, writable=False)
            except FileNotFoundError:
                return False
            files.callback(file.close)
            opened.append(file)
        piece, other = bytearray(PIECE_SIZE), bytearray(PIECE_SIZE)
        for at in range(begin, end, PIECE_SIZE):
            wanted = min(PIECE_SIZE, end - at)
            if wanted < PIECE_SIZE:
                piece, other = bytearray(wanted), bytearray(wanted)
            # Behind the padding of a segment its file may end.
            count = opened[0].pread_into(memoryview(piece), at)
            for file in opened[1:]:
                if file.pread_into(memoryview(other), at) != count:
                    return False
                # Bytearrays are compared by memcmp, views of them byte by byte.
                if (other != piece) if count == wanted else (other[:count] != piece[:count]):
                    return False
    return True


def differing_entries(
    fs: FileSystem, left: ReplicaReport, right: ReplicaReport
) -> Iterator[tuple[int, int]]:
    """Index and first differing position of entries that both know and that are not the same."""
    low = max(left.first_index, right.first_index)
    high = min(left.known_index, right.known_index)
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
                    yield index, first + _first_difference(one, other)
        begin = stop


def read_position(fs: FileSystem, report: ReplicaReport, position: int, size: int) -> bytes:
    """Bytes of a replica's log; fewer where its file ends, none where it is missing."""
    start = segment_start(position, report.segment_size)
    try:
        file = fs.open(f"{report.directory}/commitlog/{segment_name(start)}", writable=False)
    except FileNotFoundError:
        return b""
    try:
        return file.pread(size, position - start)
    finally:
        file.close()


def _entries_between(
    report: ReplicaReport, begin: int, stop: int, low: int, high: int
) -> Iterator[tuple[int, int, int]]:
    """Readable entries that overlap a range: index, and the positions of their part in it."""
    place = bisect_right(report.ends, begin, low - report.first_index)
    last = bisect_left(report.positions, stop, place, high + 1 - report.first_index)
    for number in range(place, last):
        index = number + report.first_index
        if report.chain(index) is not None:
            yield index, max(report.positions[number], begin), min(report.ends[number], stop)


def _first_difference(one: bytes, other: bytes) -> int:
    pairs: Sequence[int] = range(min(len(one), len(other)))
    return next((at for at in pairs if one[at] != other[at]), len(pairs))
