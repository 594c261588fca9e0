"""What the log says of the files of the key index, by sums over rows instead of the rows.

A file is named by the position of its first record, so names alone tell which rows of a range
belong into which file. A row counts with a number made of all its bits, and files hold the same
rows if the numbers add up to the same, however they are sorted. So a range opens none of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.errors import DamagedError
from store.index.key_file import HEADER, KEY_ROW_SIZE, VERSION, read_header
from store.io.filesystem import ReadableFileSystem
from store.log.layout import parse_segment_name
from store.verify.index.key_file_damage import PagesCheck
from store.verify.index.key_index_check import KEY_FIELDS
from store.verify.plan.ranges import KeysDigest, RangeKeys

_NO_INDEX = 1 << 62
_NONE = -1
PIECE_SIZE = 4 << 20
TOTAL_MAX = (1 << 64) - 1
_MIX = tuple(np.uint64(each) for each in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class KeyDigests:
    """Takes the batches of a range in order, as
    :class:`~store.verify.index.key_index_check.KeyCheck` does.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        directory: str,
        *,
        range_position: int,
        range_end: int,
        end_position: int,
    ) -> None:
        """``end_position`` is that of the checkpoint: files behind go at the next start."""
        starts = list_starts(fs, f"{directory}/keyindex", end_position)
        first = max(bisect_right(starts, range_position) - 1, 0)
        self._starts = [_NONE, *starts[first : bisect_left(starts, range_end)]]
        self._borders = np.array(self._starts[1:], np.int64)
        self._rows = np.zeros(len(self._starts), np.int64)
        self._totals = [0] * len(self._starts)
        self._missing: tuple[int, int, int] | None = None
        self._leader: KeyDigests | None = None
        self.expired_position = 0
        """Files of records below may have been removed."""

    def take(self, rows: bytes, entries: Sequence[tuple[int, int]]) -> None:
        """Takes the key rows of entries, of which ``entries`` has positions and indexes."""
        if not rows or self._leader is not None:
            return
        fields = np.frombuffer(rows, KEY_FIELDS)
        positions = fields["position"].astype(np.int64)
        places = np.searchsorted(self._borders, positions, "right")
        self._rows += np.bincount(places, minlength=len(self._starts))
        numbers = row_numbers(fields)
        for place in np.unique(places).tolist():
            # One file as a rule, or two.
            self._totals[place] += int(numbers[places == place].sum(dtype=np.uint64))
        if not places.all():
            outside = positions[places == 0]
            first, last = int(outside[0]), int(outside[-1])
            earliest = self._missing[0] if self._missing else index_of(first, entries)
            self._missing = (earliest, index_of(last, entries), last)

    def follow(self, other: KeyDigests) -> None:
        """The other one takes the same rows: where files have the same names, it does for both."""
        if self._starts == other._starts:
            self._leader = other

    def end_range(self) -> RangeKeys:
        """What the files are to be compared with; rows before all files are missing."""
        found = self._leader or self
        digests = (
            KeysDigest(start, rows, total & TOTAL_MAX)
            for start, rows, total in zip(
                found._starts, found._rows.tolist(), found._totals, strict=True
            )
            if rows and start != _NONE
        )
        return RangeKeys(found._missing, self.expired_position, tuple(digests))


def list_starts(fs: ReadableFileSystem, directory: str, end_position: int) -> list[int]:
    """Where the files begin, in order, that have rows of records below a position."""
    names = fs.list_directory(directory) if fs.exists(directory) else []
    starts = map(parse_segment_name, names)
    return [start for start in starts if start is not None and start < end_position]


def index_of(position: int, entries: Sequence[tuple[int, int]]) -> int:
    """The entry that holds a record, of positions and indexes."""
    return entries[max(bisect_right(entries, (position, _NO_INDEX)) - 1, 0)][1]


def row_numbers(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """A number for each row: that of another row is another one but once in 2^64 times."""
    numbers = rows["position"].astype(np.int64).view(np.uint64) * _GOLDEN
    numbers ^= rows["hash"].astype(np.uint64) << np.uint64(32) | rows["seconds"].astype(np.uint64)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= factor
    return numbers ^ numbers >> np.uint64(31)


def has_keys(
    fs: ReadableFileSystem, path: str, digest: KeysDigest, *, first_position: int, end_position: int
) -> bool:
    """Whether a file is one of the key index, in order, with the rows of records between.

    Where it is not, :class:`~store.verify.index.key_index_check.KeyCheck` tells what is wrong.
    """
    try:
        said = read_header(fs, path)
        file = fs.open(path, writable=False)
    except (DamagedError, FileNotFoundError):
        return False
    try:
        size = said.count * KEY_ROW_SIZE
        if not size:
            return False
        found_crc, rows, total = 0, 0, 0
        pages = PagesCheck(said)
        edges: list[tuple[int, int, int, int]] = []
        before = (-1, -1)
        for at in range(0, size, PIECE_SIZE):
            data = file.pread(min(PIECE_SIZE, size - at), HEADER.size + at)
            found_crc = crc32c(data, found_crc)
            pages.take(data)
            if len(data) < min(PIECE_SIZE, size - at):
                return False
            fields = np.frombuffer(data, KEY_FIELDS)
            hashes = fields["hash"].astype(np.int64)
            positions = fields["position"].astype(np.int64)
            first, last = ((int(hashes[place]), int(positions[place])) for place in (0, -1))
            if first < before or not _are_sorted(hashes, positions):
                return False
            before = last
            edges.append(_edges(positions, fields["seconds"]))
            known = (positions >= first_position) & (positions < end_position)
            if not known.all():
                fields = fields[known]
            rows += len(fields)
            total += int(row_numbers(fields).sum(dtype=np.uint64))
        firsts, lasts, first_seconds, last_seconds = zip(*edges, strict=True)
        found = [min(firsts), max(lasts), min(first_seconds), max(last_seconds)]
        stated = [said.first_position, said.last_position, said.first_seconds, said.last_seconds]
        right = (digest.start, digest.rows, digest.total, stated)
        paged = said.version == VERSION
        has_crcs = pages.are_whole if paged else found_crc == said.crc
        return has_crcs and right == (stated[0], rows, total & TOTAL_MAX, found)
    finally:
        file.close()


def _edges(positions: NDArray[Any], seconds: NDArray[Any]) -> tuple[int, int, int, int]:
    return int(positions.min()), int(positions.max()), int(seconds.min()), int(seconds.max())


def _are_sorted(hashes: NDArray[np.int64], positions: NDArray[np.int64]) -> bool:
    """By hash, rows of one hash by position."""
    if (hashes[1:] < hashes[:-1]).any():
        return False
    return not ((hashes[1:] == hashes[:-1]) & (positions[1:] < positions[:-1])).any()
