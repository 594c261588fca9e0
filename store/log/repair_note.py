"""Writing bytes again below the durable mark, where a recovery takes what it reads for durable.

While that lasts it is not so: if the process ends before its sync returns, or because the sync
failed, the page cache has the bytes and the disk may lack them ("Can Applications Recover from
fsync Failures?", ATC '20). So an empty file, ``state/putback-POSITION-SIZE``, says first which
bytes these are, and goes when they are durable. Recovery writes what it names once more, over
itself.

Where the disk cannot read a block, the whole of it is written (:mod:`store.io.unreadable_blocks`):
what it held beside the pieces is zeros then, and whoever puts something back asks
:func:`overwritten_end` before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from store.io.filesystem import BLOCK_SIZE, Bytes, File, FileSystem
from store.io.unreadable_blocks import overwrite_blocks, widened_range
from store.log.commit_log import CommitLog
from store.log.layout import segment_name, segment_start
from store.log.log_reader import HoleReason

PREFIX = "putback-"
_NAME = re.compile(rf"{PREFIX}\d{{20}}-\d+")


def overwrite_noted(
    fs: FileSystem,
    directory: str,
    segment_size: int,
    pieces: Sequence[tuple[int, Bytes]],
    opened: File | None = None,
) -> None:
    """Writes pieces of one segment, each at its position in the log; durable on return.

    ``opened`` is its file as a log in use has it: what is appended meanwhile takes turns with this,
    as long as :func:`overwritten_end` is not behind the end of the log.
    """
    noted = [f"{PREFIX}{position:020d}-{len(data)}" for position, data in pieces]
    left_over = fs.list_directory(f"{directory}/state")
    for name in noted:
        fs.open(f"{directory}/state/{name}", create=True).close()
    fs.sync_directory(f"{directory}/state")
    start = segment_start(pieces[0][0], segment_size)
    # The sync is its own descriptor's: that of the log would tell of a failed write-back but once.
    own = fs.open(f"{directory}/commitlog/{segment_name(start)}", create=True)
    try:
        for position, data in pieces:
            overwrite_blocks(opened or own, data, position - start)
        own.datasync()
    finally:
        own.close()
    for name in noted:
        # What an earlier process left may be clean in the page cache, and missing on the disk.
        if name not in left_over:
            fs.remove(f"{directory}/state/{name}")


def overwritten_end(
    fs: FileSystem, directory: str, segment_size: int, pieces: Sequence[tuple[int, Bytes]]
) -> int:
    """Up to which position :func:`overwrite_noted` writes zeros, over what cannot be read.

    0 if it writes nothing but the pieces.
    """
    start = segment_start(pieces[0][0], segment_size)
    path = f"{directory}/commitlog/{segment_name(start)}"
    if not fs.exists(path):
        return 0
    lost = 0
    file = fs.open(path, writable=False)
    try:
        for position, data in pieces:
            offset = position - start
            begin, end = widened_range(file, len(data), offset)
            if (begin, end) != (offset, offset + len(data)):
                lost = max(lost, start + min(end, segment_size))
    finally:
        file.close()
    return lost


def finish(fs: FileSystem, directory: str, log: CommitLog) -> None:
    """Makes durable what a process that ended may not have."""
    names = [name for name in fs.list_directory(f"{directory}/state") if _NAME.fullmatch(name)]
    for name in names:
        position, size = map(int, name.removeprefix(PREFIX).split("-"))
        segment = log.segments.get(segment_start(position, log.segment_size))
        if segment is not None:
            # Whole blocks, as it may be for these that the disk can read them at all.
            offset = position - segment.start
            size += offset % BLOCK_SIZE
            size += -size % BLOCK_SIZE
            offset -= offset % BLOCK_SIZE
            data, missing = log.reader.read(segment.start + offset, size)
            if missing is HoleReason.EIO:
                continue  # damage, which is found and put back once more
            segment.write(data, offset)
            segment.sync()
    for name in names:
        fs.remove(f"{directory}/state/{name}")
