"""The check of the entry index against the entries."""

from __future__ import annotations

from store.io.filesystem import ReadableFileSystem
from store.log.entry import Entry
from store.log.entry_row import ROW, ROW_SIZE
from store.verify.files.row_files import RowFiles, is_torn
from store.verify.findings import FindingKind, FindingLog

ROWS_AT_ONCE = 1 << 14
ADVICE = "remove the directory index: the next start makes it again from the log"


def index_row(entry: Entry) -> bytes:
    """The row of an entry."""
    return ROW.pack(entry.kind, entry.position, entry.size, entry.index, entry.term)


class EntryIndexCheck:
    """Takes the rows of entries in order. The files must have those before ``flushed_end``."""

    def __init__(
        self, fs: ReadableFileSystem, directory: str, flushed_end: int, log: FindingLog
    ) -> None:
        self._files = RowFiles(fs, f"{directory}/index", ROW_SIZE)
        self._flushed_end = flushed_end
        self._log = log
        self._first = -1
        self._expected = bytearray()
        self._bad: tuple[int, int, bytes, bytes] | None = None

    def take(self, first_index: int, rows: bytes) -> None:
        """Takes the rows of entries from ``first_index`` on."""
        if self._first + len(self._expected) // ROW_SIZE != first_index:
            self._compare()
            self._first = first_index
        self._expected += rows
        if len(self._expected) >= ROWS_AT_ONCE * ROW_SIZE:
            self._compare()

    def finish(self) -> None:
        """Compares the rest. Consecutive wrong rows are one finding."""
        self._compare()
        self._report()

    def _compare(self) -> None:
        expected, first = bytes(self._expected), self._first
        self._expected.clear()
        self._first += len(expected) // ROW_SIZE
        found = self._files.read(first, len(expected) // ROW_SIZE) if expected else b""
        if found == expected:
            return
        for at in range(0, len(expected), ROW_SIZE):
            row, right = found[at : at + ROW_SIZE], expected[at : at + ROW_SIZE]
            index = first + at // ROW_SIZE
            if row == right or (index >= self._flushed_end and is_torn(row, right)):
                continue
            if self._bad is not None and self._bad[1] == index - 1:
                self._bad = (self._bad[0], index, *self._bad[2:])
            else:
                self._report()
                self._bad = (index, index, right, row)

    def _report(self) -> None:
        if self._bad is None:
            return
        first, last, right, row = self._bad
        self._bad = None
        path, byte = self._files.locate(first)
        self._log.add(
            FindingKind.ENTRY_INDEX,
            path,
            byte,
            f"the row {right.hex()}",
            f"the row {row.hex()}" if row else "no row",
            ADVICE,
            first=first,
            last=last,
        )
