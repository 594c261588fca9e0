"""One file of the key index: sorted rows that never change, in pages with checksums.

``keyindex/<20 digits>``, named by the position of the first record. Big-endian::

    byte  type  field
       0  4s    magic "DLKI"
       4  u32   version (2)
       8  i64   position of the lowest record
      16  i64   position of the highest record
      24  u32   lowest store time, s
      28  u32   highest store time, s
      32  u32   rows
      36  u32   CRC32C of the bytes 0 to 36 and of the page table
      40        rows of 16 bytes: u32 key hash, i64 position of the record, u32 store time in s,
                sorted as bytes, that is by hash, then position
                page table: 8 bytes for each 256 rows: u32 hash of the first row, u32 CRC32C of
                the rows

A reader keeps the page table in memory. It finds the page by the table, reads that page and checks
it. Files of version 1 have no page table, and at byte 36 the CRC32C of all rows. Such a file is
read as a whole once, to make its page table in memory.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass

from crc32c import crc32c

from store.errors import DamagedError
from store.io.filesystem import Bytes, ReadableFile, ReadableFileSystem

KEY_ROW_SIZE = 16
HEADER = struct.Struct(">4sIqqIIII")
CRC_AT = HEADER.size - 4
MAGIC = b"DLKI"
VERSION = 2
UNPAGED_VERSION = 1
PAGE_ROWS = 256
PAGE_SIZE = PAGE_ROWS * KEY_ROW_SIZE
PAGE = struct.Struct(">II")
ROW = struct.Struct(">IqI")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The contents of the header and the page table of a file."""

    path: str
    first_position: int
    last_position: int
    first_seconds: int
    last_seconds: int
    count: int
    crc: int
    """The field at byte 36."""
    pages: bytes = b""
    """The page table; empty for a file of version 1 whose rows were not read."""
    version: int = VERSION

    @property
    def header(self) -> bytes:
        """The first 40 bytes."""
        return HEADER.pack(
            MAGIC,
            self.version,
            self.first_position,
            self.last_position,
            self.first_seconds,
            self.last_seconds,
            self.count,
            self.crc,
        )

    @property
    def page_count(self) -> int:
        return -(-self.count // PAGE_ROWS)

    def page_of(self, key_hash: int) -> int:
        """The first page that may have rows with that hash."""
        pages = self.pages

        def first_hash(page: int) -> int:
            return int.from_bytes(pages[page * PAGE.size : page * PAGE.size + 4], "big")

        return max(bisect_left(range(self.page_count), key_hash, key=first_hash) - 1, 0)


def pages_of(rows: Bytes) -> bytes:
    """The page table of rows."""
    view = memoryview(rows)
    table = bytearray()
    for at in range(0, len(view), PAGE_SIZE):
        page = view[at : at + PAGE_SIZE]
        table += page[:4]
        table += crc32c(page).to_bytes(4, "big")
    return bytes(table)


def describe(path: str, rows: Bytes) -> IndexFile:
    """Header and page table of a file of version 2 with these rows: sorted, at least one."""
    # Imported here, on a background thread: a start must not wait for NumPy.
    import numpy as np  # noqa: PLC0415 - a start must not wait for NumPy

    table = np.frombuffer(rows, [("hash", ">u4"), ("position", ">i8"), ("seconds", ">u4")])
    positions, seconds = table["position"], table["seconds"]
    edges = (positions.min(), positions.max(), seconds.min(), seconds.max())
    pages = pages_of(rows)
    first, last, first_seconds, last_seconds = map(int, edges)
    file = IndexFile(path, first, last, first_seconds, last_seconds, len(table), 0, pages)
    crc = crc32c(pages, crc32c(file.header[:CRC_AT]))
    return IndexFile(path, first, last, first_seconds, last_seconds, len(table), crc, pages)


def read_header(fs: ReadableFileSystem, path: str) -> IndexFile:
    """Header and page table of a file. Reads no row. Raises :class:`~store.errors.DamagedError`."""
    try:
        handle = fs.open(path, writable=False)
    except FileNotFoundError as error:
        raise DamagedError(path, 0, "the file is missing") from error
    except OSError as error:
        raise _unreadable(path, 0, error) from error
    try:
        return _read_header(handle)
    except OSError as error:
        raise _unreadable(path, 0, error) from error
    finally:
        handle.close()


def _read_header(handle: ReadableFile) -> IndexFile:
    path = handle.path
    header = handle.pread(HEADER.size, 0)
    size = handle.size()
    if len(header) < HEADER.size:
        raise DamagedError(path, len(header), "the header is cut short")
    magic, version, first, last, first_s, last_s, count, crc = HEADER.unpack(header)
    if magic != MAGIC or version not in {UNPAGED_VERSION, VERSION}:
        raise DamagedError(path, 0, "not a key index file of version 1 or 2")
    rows_end = HEADER.size + count * KEY_ROW_SIZE
    table_size = -(-count // PAGE_ROWS) * PAGE.size if version == VERSION else 0
    if size != rows_end + table_size:
        raise DamagedError(path, size, f"{count} rows are not {size} bytes")
    pages = handle.pread(table_size, rows_end)
    if version == VERSION and crc32c(pages, crc32c(header[:CRC_AT])) != crc:
        raise DamagedError(path, CRC_AT, "CRC of header and page table")
    return IndexFile(path, first, last, first_s, last_s, count, crc, pages, version)


def read_file(fs: ReadableFileSystem, path: str) -> IndexFile:
    """As :func:`read_header`, and always with a page table.

    A file of version 1 is read as a whole for that, and its header is compared with its rows.
    """
    file = read_header(fs, path)
    if file.version == VERSION:
        return file
    rows = b"".join(_all_rows(fs, file))
    if crc32c(rows) != file.crc or not rows:
        raise DamagedError(path, CRC_AT, "CRC of the rows")
    right = describe(path, rows)
    said = (file.first_position, file.last_position, file.first_seconds, file.last_seconds)
    if said != (right.first_position, right.last_position, right.first_seconds, right.last_seconds):
        raise DamagedError(path, 8, "the header says other positions or times than the rows")
    return IndexFile(path, *said, file.count, file.crc, right.pages, file.version)


def _all_rows(fs: ReadableFileSystem, file: IndexFile) -> list[bytes]:
    handle = fs.open(file.path, writable=False)
    try:
        size = file.count * KEY_ROW_SIZE
        return [
            handle.pread(min(1 << 20, size - at), HEADER.size + at)
            for at in range(0, size, 1 << 20)
        ]
    except OSError as error:
        raise _unreadable(file.path, HEADER.size, error) from error
    finally:
        handle.close()


def read_page(handle: ReadableFile, file: IndexFile, page: int) -> bytes:
    """The rows of a page. Raises :class:`~store.errors.DamagedError` if they are damaged."""
    at = page * PAGE_SIZE
    size = min(PAGE_SIZE, file.count * KEY_ROW_SIZE - at)
    try:
        rows = handle.pread(size, HEADER.size + at)
    except OSError as error:
        raise _unreadable(file.path, HEADER.size + at, error) from error
    if len(rows) < size:
        raise DamagedError(file.path, HEADER.size + at + len(rows), "the file is cut short")
    _, crc = PAGE.unpack_from(file.pages, page * PAGE.size)
    if crc32c(rows) != crc:
        raise DamagedError(file.path, HEADER.size + at, "CRC of the page")
    return rows


def check_pages(fs: ReadableFileSystem, file: IndexFile) -> None:
    """Raises :class:`~store.errors.DamagedError` if the file is damaged or has another header."""
    if read_header(fs, file.path).header != file.header:
        raise DamagedError(file.path, 0, "the header is another one than it was")
    handle = fs.open(file.path, writable=False)
    try:
        for page in range(file.page_count):
            read_page(handle, file, page)
    finally:
        handle.close()


def _unreadable(path: str, position: int, error: OSError) -> DamagedError:
    # An OSError on the event loop would be taken for an error of a socket.
    return DamagedError(path, position, f"cannot be read: {error}")


def read_row(handle: ReadableFile, row: int) -> tuple[int, int, int]:
    """Key hash, position and store time (s) of one row, unchecked.

    Raises :class:`~store.errors.DamagedError` if the file is too short.
    """
    at = HEADER.size + row * KEY_ROW_SIZE
    data = handle.pread(KEY_ROW_SIZE, at)
    if len(data) < KEY_ROW_SIZE:
        raise DamagedError(handle.path, at + len(data), "the file is cut short")
    key_hash, position, seconds = ROW.unpack(data)
    return key_hash, position, seconds
