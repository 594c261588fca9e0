"""Header and page table that a file of the key index must have, computed from its rows.

It is written from docs/format.md.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.errors import DamagedError
from store.index.key_file import (
    CRC_AT,
    HEADER,
    KEY_ROW_SIZE,
    MAGIC,
    PAGE,
    PAGE_SIZE,
    VERSION,
    IndexFile,
)
from store.io.filesystem import ReadableFileSystem
from store.verify.files.first_difference import first_difference
from store.verify.log.record_columns import KEY_ROWS

Edges = tuple[int, int, int, int]
"""Lowest and highest position of the rows, lowest and highest store time in seconds."""


def edges_of(rows: NDArray[np.void]) -> Edges:
    positions, seconds = rows["position"], rows["seconds"]
    edges = (positions.min(), positions.max(), seconds.min(), seconds.max())
    first, last, first_seconds, last_seconds = map(int, edges)
    return first, last, first_seconds, last_seconds


def stated_edges(file: IndexFile) -> Edges:
    return file.first_position, file.last_position, file.first_seconds, file.last_seconds


def page_table(rows: bytes) -> bytes:
    """The page table: for each page of rows, the hash of its first row and the page's CRC32C."""
    pages = [rows[at : at + PAGE_SIZE] for at in range(0, len(rows), PAGE_SIZE)]
    return b"".join([page[:4] + crc32c(page).to_bytes(4, "big") for page in pages])


def first_unordered(rows: NDArray[np.void]) -> int | None:
    """The number of the first row that is smaller than the row before it."""
    hashes, positions = rows["hash"].astype(np.uint32), rows["position"].astype(np.int64)
    falls = hashes[1:] < hashes[:-1]
    falls |= (hashes[1:] == hashes[:-1]) & (positions[1:] < positions[:-1])
    found = np.flatnonzero(falls)
    return int(found[0]) + 1 if len(found) else None


def damaged_byte(fs: ReadableFileSystem, error: DamagedError) -> int:
    """The first wrong byte of header or page table, if the rows are right."""
    if error.position != CRC_AT:
        return error.position
    with closing(fs.open(error.path, writable=False)) as handle:
        data = handle.pread(handle.size(), 0)
    count = HEADER.unpack_from(data)[6]
    rows = data[HEADER.size :][: count * KEY_ROW_SIZE]
    if not rows:
        return error.position
    edges, pages = edges_of(np.frombuffer(rows, KEY_ROWS)), page_table(rows)
    header = HEADER.pack(MAGIC, VERSION, *edges, len(rows) // KEY_ROW_SIZE, 0)[:CRC_AT]
    header += crc32c(pages, crc32c(header)).to_bytes(4, "big")
    return first_difference(data, header + rows + pages)


def wrong_rows(file: IndexFile, data: bytes) -> tuple[int, int, int] | None:
    """The first rows that do not have their CRC: first byte, stated CRC, and actual CRC.

    Where ``data`` ends before these rows do, the first byte is the one that is missing.
    """
    if file.version != VERSION or not data:
        found = crc32c(data)
        wrong = found != file.crc or not data
        return (_first_missing(file, data, 0), file.crc, found) if wrong else None
    found_pages = page_table(data)
    for at in range(0, len(file.pages), PAGE.size):
        if found_pages[at : at + PAGE.size] != file.pages[at : at + PAGE.size]:
            begin = at // PAGE.size * PAGE_SIZE
            page = data[begin : begin + PAGE_SIZE]
            _, stated = PAGE.unpack_from(file.pages, at)
            cut = len(page) < PAGE_SIZE
            return _first_missing(file, data, begin) if cut else begin, stated, crc32c(page)
    return None


def _first_missing(file: IndexFile, data: bytes, begin: int) -> int:
    """Where the rows end too early; ``begin`` if all are there."""
    return len(data) if len(data) < file.count * KEY_ROW_SIZE else begin
