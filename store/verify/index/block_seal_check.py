"""The check of the checksums of ConsumeQueues: seals of blocks, and ``state/tails``.

Seals are compared with the rows in the files. So they are findings only if no row of the queue is
wrong. A block without a seal is no finding.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

from crc32c import crc32c

from store.index.block_seals import (
    BLOCK_ROWS,
    ROW_SIZE,
    SEAL_SIZE,
    SEAL_SUFFIX,
    Tail,
    unpack_seal,
)
from store.index.queue_rows import ROWS_PER_FILE
from store.index.queue_tails import PAYLOAD_AT
from store.io.filesystem import ReadableFileSystem
from store.log.layout import segment_name
from store.verify.findings import FindingKind, FindingLog
from store.verify.index.consume_queue_files import QueueFiles
from store.verify.state.queue_tails_check import ADVICE

SEALS_SIZE_MAX = -(-ROWS_PER_FILE // BLOCK_ROWS) * SEAL_SIZE


def check_seals(
    fs: ReadableFileSystem,
    files: QueueFiles,
    bytes_of_rows: tuple[int, int | None],
    offsets: tuple[int, int],
    log: FindingLog,
) -> None:
    """Compares the seals of blocks with their rows.

    ``bytes_of_rows``: the blocks begin from the first to before the second of these bytes.
    ``offsets``: first and end offset, between which the blocks lie. ``fs`` notes what it cannot
    read.
    """
    low, high = bytes_of_rows
    first, end = offsets
    starts = files.starts
    for start, following in pairwise([*starts, (starts[-1] if starts else 0) + (1 << 60)]):
        begin_max = following if high is None else min(high, following)
        if begin_max <= low or start // ROW_SIZE >= end:
            continue
        name = f"{segment_name(start)}{SEAL_SUFFIX}"
        if name not in files.others:
            continue
        path = f"{files.directory}/{name}"
        with closing(fs.open(path, writable=False)) as file:
            data = file.pread(SEALS_SIZE_MAX, 0)
        for at in range(0, len(data) - SEAL_SIZE + 1, SEAL_SIZE):
            begin = start // ROW_SIZE + at // SEAL_SIZE * BLOCK_ROWS
            stop = min(begin + BLOCK_ROWS, start // ROW_SIZE + ROWS_PER_FILE, following // ROW_SIZE)
            if not low <= begin * ROW_SIZE < begin_max or stop <= first:
                continue
            if stop > end:
                break
            rows = files.rows(begin, stop - begin)
            found = _wrong_seal(data[at : at + SEAL_SIZE], rows, whole=begin >= first)
            if found:
                expected = f"the seal of offsets {begin} to {stop - 1}"
                kind = FindingKind.CONSUME_QUEUE
                log.add(kind, path, at, expected, found, ADVICE)


def _wrong_seal(data: bytes, rows: bytes, *, whole: bool) -> str:
    """What is wrong with a seal, or "". ``whole``: no record of the block has expired."""
    try:
        seal = unpack_seal(data)
    except ValueError as error:
        return str(error)
    if seal is None:
        return ""
    position = int.from_bytes(rows[:8], "big", signed=True)
    if seal.crc != crc32c(rows) or (whole and seal.position != position):
        return f"the seal {data.hex()} of other rows"
    return ""


def check_tail(files: QueueFiles, tail: Tail, first: int, path: str, log: FindingLog) -> None:
    """Compares the tail of a queue in ``state/tails`` with its rows, if the files have all of them.

    ``first`` is the first offset of the queue. Expired rows are not compared.
    """
    if tail.end <= first:
        return
    offsets = [start // ROW_SIZE for start in files.starts if start // ROW_SIZE < tail.end]
    begin = offsets[-1] if offsets else 0
    begin += (tail.end - begin) // BLOCK_ROWS * BLOCK_ROWS
    rows = files.rows(begin, tail.end - begin)
    position = int.from_bytes(rows[:8], "big", signed=True)
    if len(rows) < (tail.end - begin) * ROW_SIZE:
        return
    if tail.crc != crc32c(rows) or (begin >= first and tail.position != position):
        log.add(
            FindingKind.CONSUME_QUEUE,
            path,
            PAYLOAD_AT,
            f"the CRC32C of offsets {begin} to {tail.end - 1} of {files.directory}",
            f"{tail.crc:08x}, of other rows",
            ADVICE,
        )
