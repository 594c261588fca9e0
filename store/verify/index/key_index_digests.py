"""Digests of the key rows in the log: a sum over the rows of each key index file.

A file is named by the position of its first record. So the names say which rows of a range belong
to which file. A number is computed from all bits of a row. If the sums of these numbers are equal,
a file has the same rows, in any order. So the check of a range opens no file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.errors import DamagedError
from store.index.key_file import HEADER, KEY_ROW_SIZE, VERSION, read_header
from store.io.filesystem import ReadableFileSystem
from store.verify.files.row_files import list_starts
from store.verify.index.key_file_check import (
    Edges,
    edges_of,
    first_unordered,
    page_table,
    stated_edges,
)
from store.verify.log.record_columns import KEY_ROWS
from store.verify.plan.ranges import KeysDigest, MissingKeys, RangeKeys

_NO_INDEX = 1 << 62
_NONE = -1
PIECE_SIZE = 4 << 20
"""A multiple of the page size."""
TOTAL_MAX = (1 << 64) - 1
_MIX = tuple(np.uint64(each) for each in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class KeyDigests:
    """Takes the key rows of a range in order, up to the checkpoint."""

    def __init__(
        self,
        fs: ReadableFileSystem,
        directory: str,
        *,
        range_position: int,
        range_end: int,
        end_position: int,
    ) -> None:
        """``end_position``: that of the checkpoint. The next start removes later files."""
        starts = list_starts(fs, f"{directory}/keyindex", end_position)
        first = max(bisect_right(starts, range_position) - 1, 0)
        self._starts = [_NONE, *starts[first : bisect_left(starts, range_end)]]
        self._borders = np.array(self._starts[1:], np.int64)
        self._rows = np.zeros(len(self._starts), np.int64)
        self._totals = [0] * len(self._starts)
        self._missing: MissingKeys | None = None
        self._leader: KeyDigests | None = None
        self.expired_position = 0
        """Files of records below this position may have been removed."""

    def take(self, rows: bytes, entries: Sequence[tuple[int, int]]) -> None:
        """Takes the key rows of entries. ``entries``: their positions and indexes."""
        if not rows or self._leader is not None:
            return
        fields = np.frombuffer(rows, KEY_ROWS)
        positions = fields["position"].astype(np.int64)
        places = np.searchsorted(self._borders, positions, "right")
        counts = np.bincount(places, minlength=len(self._starts))
        self._rows += counts
        numbers = row_numbers(fields)
        for place in np.flatnonzero(counts).tolist():  # one file as a rule, or two
            self._totals[place] += int(numbers[places == place].sum(dtype=np.uint64))
        if not places.all():
            found = missing_keys(positions[places == 0], entries)
            self._missing = found.behind(self._missing)

    def follow(self, other: KeyDigests) -> None:
        """Takes over the digests of ``other`` at the end, if the files of both have equal names."""
        if self._starts == other._starts:
            self._leader = other

    def end_range(self) -> RangeKeys:
        """What the files must hold. Rows before the first file are missing."""
        found = self._leader or self
        digests = (
            KeysDigest(start, rows, total & TOTAL_MAX)
            for start, rows, total in zip(
                found._starts, found._rows.tolist(), found._totals, strict=True
            )
            if rows and start != _NONE
        )
        return RangeKeys(found._missing, self.expired_position, tuple(digests))


def missing_keys(positions: NDArray[np.int64], entries: Sequence[tuple[int, int]]) -> MissingKeys:
    """The missing key rows, by the positions of their records, in order."""
    first, last = int(positions[0]), int(positions[-1])
    return MissingKeys(index_of(first, entries), index_of(last, entries), last)


def index_of(position: int, entries: Sequence[tuple[int, int]]) -> int:
    """The entry that holds a record. ``entries``: positions and indexes."""
    return entries[max(bisect_right(entries, (position, _NO_INDEX)) - 1, 0)][1]


def row_numbers(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """A number for each row. Different rows have the same number with a chance of 2^-64."""
    numbers = rows["position"].astype(np.int64).view(np.uint64) * _GOLDEN
    numbers ^= rows["hash"].astype(np.uint64) << np.uint64(32) | rows["seconds"].astype(np.uint64)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= factor
    return numbers ^ numbers >> np.uint64(31)


def has_keys(
    fs: ReadableFileSystem, path: str, digest: KeysDigest, *, first_position: int, end_position: int
) -> bool:
    """Whether a file is intact, sorted, and has the rows of the records between two positions.

    If not, :mod:`store.verify.index.range_reread` finds what is wrong.
    """
    try:
        said = read_header(fs, path)
        file = fs.open(path, writable=False)
    except (DamagedError, FileNotFoundError):
        return False
    with closing(file):
        size = said.count * KEY_ROW_SIZE
        if not size:
            return False
        crc, count, total = 0, 0, 0
        pages: list[bytes] = []
        edges: list[Edges] = []
        before = np.zeros(0, KEY_ROWS)
        for at in range(0, size, PIECE_SIZE):
            wanted = min(PIECE_SIZE, size - at)
            data = file.pread(wanted, HEADER.size + at)
            if len(data) < wanted:
                return False
            crc = crc32c(data, crc)
            pages.append(page_table(data))
            rows = np.frombuffer(data, KEY_ROWS)
            over = np.concatenate((before, rows[:1]))
            if first_unordered(over) is not None or first_unordered(rows) is not None:
                return False
            before = rows[-1:]
            edges.append(edges_of(rows))
            positions = rows["position"]
            known = (positions >= first_position) & (positions < end_position)
            if not known.all():
                rows = rows[known]
            count += len(rows)
            total += int(row_numbers(rows).sum(dtype=np.uint64))
        firsts, lasts, first_seconds, last_seconds = zip(*edges, strict=True)
        found = (min(firsts), max(lasts), min(first_seconds), max(last_seconds))
        is_whole = b"".join(pages) == said.pages if said.version == VERSION else crc == said.crc
        if not is_whole:
            return False
        held = KeysDigest(said.first_position, count, total & TOTAL_MAX)
        return stated_edges(said) == found and held == digest
