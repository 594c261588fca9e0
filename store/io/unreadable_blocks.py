"""Reading and writing a file that may have unreadable sectors.

Before a part of a page is written, the page cache reads the page. So a write of a part of an
unreadable block fails, and a repair would fail with it. A write of whole blocks reads nothing: the
disk gives them another place. What else the block held is lost already. Zeros take its place; they
are found and repaired like any other damage.
"""

from __future__ import annotations

import errno

from store.io.filesystem import BLOCK_SIZE, Bytes, File, ReadableFile

UNREADABLE = frozenset(
    {errno.EIO, errno.ENODATA, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}
)
"""A read fails with one of these if the disk, or the file system by a checksum, has lost the bytes.
Other errors (no descriptors, no memory) say nothing about the bytes."""


def read_until_unreadable(
    file: ReadableFile, size: int, offset: int
) -> tuple[bytes, OSError | None]:
    """Up to ``size`` bytes from ``offset`` on, and the error of the block that ended them.

    Without an error there are fewer only where the file ends. Raises ``OSError`` that tells nothing
    of the bytes.
    """
    try:
        return file.pread(size, offset), None
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
    parts: list[bytes] = []
    at, end = offset, offset + size
    while at < end:
        wanted = min(BLOCK_SIZE - at % BLOCK_SIZE, end - at)
        try:
            part = file.pread(wanted, at)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            return b"".join(parts), error
        parts.append(part)
        at += len(part)
        if len(part) < wanted:
            break
    return b"".join(parts), None


def widened_range(file: File, size: int, offset: int) -> tuple[int, int]:
    """From where to where a write of these bytes must go: over the whole of a block at either end
    that cannot be read. What it covers beside them becomes zeros."""
    begin, end = offset, offset + size
    first, last = begin - begin % BLOCK_SIZE, end - end % BLOCK_SIZE
    if begin > first and not is_readable(file, first):
        begin = first
    if end > last and not is_readable(file, last):
        end = last + BLOCK_SIZE
    return begin, end


def overwrite_blocks(file: File, data: Bytes, offset: int, *, may_cut: bool = False) -> None:
    """Writes over what is there, readable or not. The file keeps its size, if they fit into it.

    Whole blocks are written only after a write of the bytes alone has failed. A read that fails
    once says less: what stands beside the bytes may be all right, and nobody would look again.
    ``may_cut`` is as for :func:`overwrite_whole_blocks`.
    """
    try:
        file.pwrite(data, offset)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        if not overwrite_whole_blocks(file, data, offset, may_cut=may_cut):
            raise


def overwrite_whole_blocks(file: File, data: Bytes, offset: int, *, may_cut: bool = False) -> bool:
    """Writes the bytes, and the whole of a block at either end that cannot be read. Returns
    whether there was one; nothing is written without.

    A write into the last block goes beyond the end of the file, which is cut afterwards. If the
    write is interrupted, the file stays too long. With ``may_cut`` the unreadable block is cut off
    before instead. The file is never too long then, and ends with the data.
    """
    begin, end = widened_range(file, len(data), offset)
    data_end = offset + len(data)
    if (begin, end) == (offset, data_end):
        return False
    size = max(file.size(), data_end)
    if may_cut and end > size:
        file.truncate(end - BLOCK_SIZE)
        size = end = data_end
    file.pwrite(bytes(offset - begin) + bytes(data) + bytes(end - data_end), begin)
    if end > size:
        file.truncate(size)
    return True


def is_readable(file: ReadableFile, block: int) -> bool:
    """Whether the disk can read the block of the file that begins at this byte."""
    try:
        file.pread(BLOCK_SIZE, block)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return False
    return True
