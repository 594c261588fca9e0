"""Checks the key index against the key rows that the log gives."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.errors import DamagedError
from store.index.key_file import HEADER, KEY_ROW_SIZE, VERSION, IndexFile, read_header
from store.io.filesystem import ReadableFileSystem
from store.log.layout import parse_segment_name, segment_name
from store.verify.findings import FindingKind, FindingLog
from store.verify.index.consume_queue_check import ADVICE
from store.verify.index.key_file_damage import damaged_byte, wrong_rows
from store.verify.plan.ranges import RangeKeys

_NO_INDEX = 1 << 62
UNDOUBTED_SIZE = 64 << 20
PIECE_SIZE = 1 << 20
KEY_FIELDS = np.dtype([("hash", ">u4"), ("position", ">i8"), ("seconds", ">u4")])


class KeyCheck:
    """Takes the batches of a range in order, up to the checkpoint.

    Its files follow each other in the log: each holds the rows of the records between two flushes,
    so one file's rows are compared at a time, those of the range alone. Below ``first_position``
    the log has expired, and what lies in ``lost`` (positions, from and to) could not be read: rows
    of those are unknown.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        directory: str,
        log: FindingLog,
        *,
        first_position: int,
        end_position: int,
        range_position: int,
        range_end: int,
        lost: Sequence[tuple[int, int]],
    ) -> None:
        self._fs = fs
        self._directory = f"{directory}/keyindex"
        self._log = log
        self._first_position = first_position
        self._range_position = range_position
        self._range_end = range_end
        self._lost = lost
        self._unreadable: set[str] = set()
        self._files = self._read_headers(end_position)
        self._next = 0
        self._rows: list[bytes] = []
        self._sorted: dict[tuple[int, int, int], NDArray[np.void]] = {}
        self._entries: list[tuple[int, int]] = []
        self._missing: tuple[int, int, int] | None = None
        self.expired_position = 0
        """Files of records below may have been removed."""

    def take(self, rows: bytes, entries: Sequence[tuple[int, int]]) -> None:
        """Takes the key rows of entries, of which ``entries`` has positions and indexes."""
        if not rows:
            return
        first_position = int.from_bytes(rows[4:12], "big")
        while self._next < len(self._files) and (
            self._files[self._next].last_position < first_position
        ):
            self._compare(self._files[self._next])
            self._next += 1
        self._rows.append(rows)
        self._entries += entries

    def end_range(self) -> RangeKeys:
        """Compares the rest; that no file has a row is for the end to judge."""
        while self._next < len(self._files):
            self._compare(self._files[self._next])
            self._next += 1
        self._compare_none()
        return RangeKeys(self._missing, self.expired_position)

    def _read_headers(self, end_position: int) -> list[IndexFile]:
        """Those files that the checkpoint covers which may have rows of the range.

        Files that begin behind the checkpoint go at the next start.
        """
        names = self._fs.list_directory(self._directory) if self._fs.exists(self._directory) else []
        parsed = [parse_segment_name(name) for name in names]
        starts = [start for start in parsed if start is not None and start < end_position]
        # What an unreadable file should hold is not missing as well: it reaches to the next file.
        ends = [*starts[1:], end_position]
        first = max(bisect_right(starts, self._range_position) - 1, 0)
        stop = bisect_left(starts, self._range_end)
        files = [
            self._read_header(start, end - 1)
            for start, end in zip(starts[first:stop], ends[first:stop], strict=True)
        ]
        return [file for file in files if file.last_position >= self._range_position]

    def _read_header(self, start: int, last_position: int) -> IndexFile:
        path = f"{self._directory}/{segment_name(start)}"
        try:
            file = read_header(self._fs, path)
            if file.first_position != start or file.last_position < start:
                raise DamagedError(path, 8, f"positions from {file.first_position}")
        except DamagedError as error:
            self._log.add(
                FindingKind.KEY_INDEX,
                error.path,
                damaged_byte(self._fs, error),
                expected="a key index file",
                found=error.what,
                advice=ADVICE,
            )
            self._unreadable.add(path)
            return IndexFile(path, start, last_position, 0, 0, 0, 0)
        return file

    def _pending(self) -> NDArray[np.void]:
        if len(self._rows) > 1:
            self._rows = [b"".join(self._rows)]
        return np.frombuffer(self._rows[0] if self._rows else b"", KEY_FIELDS)

    def _within(self, file: IndexFile) -> NDArray[np.void]:
        """The rows from the log up to the last record of a file, as the log has them."""
        rows = self._pending()
        within = rows["position"] <= file.last_position
        count = int(np.count_nonzero(within))
        return rows[:count] if within[:count].all() else rows[within]

    def _has_expected(self, file: IndexFile, found: NDArray[np.void]) -> bool:
        """Whether a file has the rows from the log; what is no is for those in order to tell."""
        expected, numbers = row_numbers(self._within(file), file), row_numbers(found, file)
        return (
            expected is not None
            and numbers is not None
            and np.array_equal(np.sort(expected), numbers)
        )

    def _expected(self, file: IndexFile) -> NDArray[np.void]:
        """The rows from the log that a file must have, in its order."""
        rows = self._within(file)
        name = (file.first_position, file.last_position, len(rows))
        if name not in self._sorted:
            hashes, positions = rows["hash"].astype(np.uint64), rows["position"].astype(np.int64)
            offsets = (positions - file.first_position).view(np.uint64)
            if len(rows) and offsets.max() < 1 << 32:
                order = np.argsort(hashes << np.uint64(32) | offsets)
            else:
                order = np.lexsort((positions, hashes))
            self._sorted[name] = rows[order]
        return self._sorted[name]

    def _compare(self, file: IndexFile) -> None:
        """Compares a file with the rows from the log that end with its last record."""
        self._compare_none(file.first_position)
        found = None
        if file.path not in self._unreadable:
            found = self._check_data(file, self._read_data(file))
        if found is not None:
            positions = found["position"].astype(np.int64)
            known = positions >= max(self._first_position, self._range_position)
            known &= positions < self._range_end
            for start, end in self._lost:
                known &= (positions < start) | (positions >= end)
            rows = found
            if not known.all():
                found = found[known]
            if not self._has_expected(file, found):
                expected = self._expected(file)
                if found.tobytes() != expected.tobytes():
                    self._tell_different(file, rows, known, expected)
        self._drop_below(file.last_position + 1)

    def _read_data(self, file: IndexFile) -> bytes:
        """All rows; of so many that it must be doubted, no more than are right."""
        handle = self._fs.open(file.path, writable=False)
        size = file.count * KEY_ROW_SIZE
        try:
            if file.version != VERSION and size > UNDOUBTED_SIZE:
                crc = 0
                for at in range(0, size, PIECE_SIZE):
                    crc = crc32c(handle.pread(min(PIECE_SIZE, size - at), HEADER.size + at), crc)
                if crc != file.crc:
                    size = 0
            return handle.pread(size, HEADER.size)
        finally:
            handle.close()

    def _check_data(self, file: IndexFile, data: bytes) -> NDArray[np.void] | None:
        """The rows of a file, if its header fits them."""
        wrong = wrong_rows(file, data)
        if wrong is not None:
            at, right_crc, found_crc = wrong
            self._log.add(
                FindingKind.KEY_INDEX,
                file.path,
                HEADER.size + at,
                expected=f"rows with CRC {right_crc:08x}",
                found=f"{found_crc:08x}",
                advice=ADVICE,
                first=self._index_of(file.first_position),
                last=self._index_of(file.last_position),
            )
            return None
        rows = np.frombuffer(data, KEY_FIELDS)
        unordered = _first_unordered(rows)
        if unordered is not None:
            self._log.add(
                FindingKind.KEY_INDEX,
                file.path,
                HEADER.size + unordered * KEY_ROW_SIZE,
                expected="rows sorted by hash, then position",
                found=f"the row {rows[unordered : unordered + 1].tobytes().hex()}",
                advice=ADVICE,
            )
            return None
        stated = (
            file.first_position,
            file.last_position,
            file.first_seconds,
            file.last_seconds,
        )
        found = tuple(
            int(edge(rows[name])) for name in ("position", "seconds") for edge in (np.min, np.max)
        )
        if stated != found:
            self._log.add(
                FindingKind.KEY_INDEX,
                file.path,
                8,
                expected=f"positions and seconds {found}, as its rows have them",
                found=f"{stated}",
                advice=ADVICE,
            )
        return rows

    def _tell_different(
        self,
        file: IndexFile,
        rows: NDArray[np.void],
        known: NDArray[np.bool_],
        expected: NDArray[np.void],
    ) -> None:
        """Tells the first row that is missing or too many; ``known`` are those to be compared."""
        found = rows[known]
        common = min(len(found), len(expected))
        differs = np.flatnonzero(found[:common].view("V16") != expected[:common].view("V16"))
        at = int(differs[0]) if len(differs) else common
        right, wrong = expected[at : at + 1], found[at : at + 1]
        is_extra = len(right) == 0 or (len(wrong) > 0 and wrong.tobytes() < right.tobytes())
        odd = wrong if is_extra else right
        if is_extra:
            place = int(np.flatnonzero(known)[at])
        else:  # where it belongs
            hashes, positions = rows["hash"], rows["position"]
            before = hashes < odd["hash"]
            before |= (hashes == odd["hash"]) & (positions < odd["position"])
            place = int(np.count_nonzero(before))
        row = f"the row {odd.tobytes().hex()}"
        self._log.add(
            FindingKind.KEY_INDEX,
            file.path,
            HEADER.size + place * KEY_ROW_SIZE,
            expected="a row that the log has, once" if is_extra else row,
            found=row if is_extra else "no such row",
            advice=ADVICE,
            # No entry has a row that is too many, whatever position stands in it.
            first=None if is_extra else self._index_of(int(odd["position"][0])),
        )

    def _compare_none(self, below: int = 1 << 62) -> None:
        """Rows of the log that no file holds, up to a position."""
        rows = self._pending()
        missing = rows[rows["position"] < below]
        if len(missing):
            first, last = (int(missing["position"][at]) for at in (0, -1))
            earliest = self._missing[0] if self._missing else self._index_of(first)
            self._missing = (earliest, self._index_of(last), last)
            self._drop_below(below)

    def _drop_below(self, position: int) -> None:
        rows = self._pending()
        rest = rows[rows["position"] >= position]
        self._rows = [rest.tobytes()] if len(rest) else []
        # The entry that holds the position stays, and so does the last one.
        del self._entries[: max(bisect_right(self._entries, (position, _NO_INDEX)) - 1, 0)]

    def _index_of(self, position: int) -> int:
        """The entry that holds a record, as far as the entries at hand tell."""
        place = max(bisect_right(self._entries, (position, _NO_INDEX)) - 1, 0)
        return self._entries[place][1] if self._entries else -1


def _first_unordered(rows: NDArray[np.void]) -> int | None:
    """The first row that should come before the one before it."""
    hashes, positions = rows["hash"], rows["position"]
    falls = hashes[1:] < hashes[:-1]
    falls |= (hashes[1:] == hashes[:-1]) & (positions[1:] < positions[:-1])
    found = np.flatnonzero(falls)
    return int(found[0]) + 1 if len(found) else None


def row_numbers(rows: NDArray[np.void], file: IndexFile) -> NDArray[np.uint64] | None:
    """A number for each row, all its fields in it, which sorts as the rows of a file do.

    ``None`` where rows are outside of what the file says to have, or that is too much for it.
    """
    seconds_max = file.last_seconds - file.first_seconds
    offset_max = file.last_position - file.first_position
    bits = seconds_max.bit_length()
    if offset_max.bit_length() + bits > 32:
        return None
    offsets = rows["position"].astype(np.int64) - file.first_position
    seconds = rows["seconds"].astype(np.int64) - file.first_seconds
    for column, most in ((offsets, offset_max), (seconds, seconds_max)):
        if len(column) and not 0 <= column.min() <= column.max() <= most:
            return None
    numbers = rows["hash"].astype(np.uint64)
    numbers <<= np.uint64(32)
    numbers |= (offsets << bits | seconds).view(np.uint64)
    return numbers


def tell_missing(directory: str, ranges: Iterable[RangeKeys], log: FindingLog) -> None:
    """Notes key rows that no file has, unless they have expired since."""
    ranges = list(ranges)
    missing = [keys.missing for keys in ranges if keys.missing is not None]
    expired = max((keys.expired_position for keys in ranges), default=0)
    if missing and missing[-1][2] >= expired:
        log.add(
            FindingKind.KEY_INDEX,
            f"{directory}/keyindex",
            0,
            expected=f"a file with the keys of the record at position {missing[-1][2]}",
            found="none",
            advice=ADVICE,
            first=missing[0][0],
            last=missing[-1][1],
        )
