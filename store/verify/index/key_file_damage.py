"""Which byte of a key index file is wrong."""

from __future__ import annotations

from crc32c import crc32c

from store.errors import DamagedError
from store.index.key_file import (
    CRC_AT,
    HEADER,
    KEY_ROW_SIZE,
    PAGE,
    PAGE_SIZE,
    VERSION,
    IndexFile,
    describe,
    pages_of,
)
from store.io.filesystem import ReadableFileSystem
from store.verify.files.first_difference import first_difference


def damaged_byte(fs: ReadableFileSystem, error: DamagedError) -> int:
    """Where header or page table are wrong, if the rows are those that were written."""
    if error.position != CRC_AT:
        return error.position
    handle = fs.open(error.path, writable=False)
    try:
        data = handle.pread(handle.size(), 0)
    finally:
        handle.close()
    count = int.from_bytes(data[32:36], "big")
    rows = data[HEADER.size :][: count * KEY_ROW_SIZE]
    if not rows:
        return error.position
    right = describe(error.path, rows)
    return first_difference(data, right.header + rows + right.pages)


def wrong_rows(file: IndexFile, data: bytes) -> tuple[int, int, int] | None:
    """The first byte of rows with another CRC, the CRC that they must have, and theirs."""
    found_crc = crc32c(data)
    if file.version != VERSION or not data:
        return (0, file.crc, found_crc) if found_crc != file.crc or not data else None
    found = pages_of(data)
    for at in range(0, len(file.pages), PAGE.size):
        if found[at : at + PAGE.size] != file.pages[at : at + PAGE.size]:
            _, right_crc = PAGE.unpack_from(file.pages, at)
            page = data[at // PAGE.size * PAGE_SIZE :][:PAGE_SIZE]
            return at // PAGE.size * PAGE_SIZE, right_crc, crc32c(page)
    return None


class PagesCheck:
    """Compares the rows of a file with its page table, some at a time."""

    def __init__(self, file: IndexFile) -> None:
        self._pages = file.pages
        self._crc = self._at = 0
        self._end = file.count * KEY_ROW_SIZE
        self.are_whole = True

    def take(self, data: bytes) -> None:
        """Takes the next rows."""
        view = memoryview(data)
        while view:
            part = view[: PAGE_SIZE - self._at % PAGE_SIZE]
            page = self._at // PAGE_SIZE * PAGE.size
            self._crc = crc32c(part, self._crc if self._at % PAGE_SIZE else 0)
            self._at += len(part)
            if self._at % PAGE_SIZE == 0 or self._at == self._end:
                right = self._pages[page + 4 : page + PAGE.size]
                self.are_whole = self.are_whole and right == self._crc.to_bytes(4, "big")
            view = view[len(part) :]
