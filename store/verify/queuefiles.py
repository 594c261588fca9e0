"""The files of one ConsumeQueue, and what may stand in them that the log does not know."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from store.batch import QUEUE_ROW
from store.consumequeue import ROW_SIZE, ROWS_PER_FILE
from store.filesystem import Readable
from store.layout import SEGMENT_SIZE_MAX, segment_name
from store.record import RECORD_FIXED_SIZE
from store.verify.findings import FindingKind, FindingLog
from store.verify.rowfiles import RowFiles

READ_AHEAD_ROWS = 400
ROWS_AT_ONCE = 1 << 14
SECTOR_SIZE = 512
FILE_SIZE_MAX = ROWS_PER_FILE * ROW_SIZE
EXTRA = "the next start removes it"


class QueueFiles:
    """Reads rows a little ahead, so that following the log costs one read for many runs."""

    def __init__(self, fs: Readable, directory: str) -> None:
        self._files = RowFiles(fs, directory, ROW_SIZE)
        self._buffer = b""
        self._buffer_first = 0

    def rows(self, first: int, count: int) -> bytes:
        """Rows from offset ``first`` on, fewer where they are not all there."""
        at = (first - self._buffer_first) * ROW_SIZE
        size = count * ROW_SIZE
        if at < 0 or at + size > len(self._buffer):
            self._buffer = self._files.read(first, max(count, READ_AHEAD_ROWS))
            self._buffer_first, at = first, 0
        return self._buffer[at : at + size]

    def locate(self, offset: int) -> tuple[str, int]:
        return self._files.locate(offset)

    def check_shape(self, log: FindingLog) -> None:
        """Tells files that are none of a queue, and bytes that belong to the next file."""
        starts = self._files.starts
        for start in starts:
            size = self._files.size(start)
            if size > FILE_SIZE_MAX:
                log.add(
                    FindingKind.CONSUME_QUEUE,
                    f"{self._files.directory}/{segment_name(start)}",
                    FILE_SIZE_MAX,
                    expected=f"at most {FILE_SIZE_MAX} bytes",
                    found=f"{size} bytes",
                    advice=EXTRA,
                )
        for name in self._files.strays:
            log.add(
                FindingKind.CONSUME_QUEUE,
                f"{self._files.directory}/{name}",
                0,
                expected="only files named by 20 digits",
                found="another file",
                advice=EXTRA,
            )
        for start, following in pairwise(starts):
            size = self._files.size(start)
            if size > following - start:
                log.add(
                    FindingKind.CONSUME_QUEUE,
                    f"{self._files.directory}/{segment_name(start)}",
                    following - start,
                    expected=f"at most {following - start} bytes before the next file",
                    found=f"{size} bytes",
                    advice=EXTRA,
                )

    def check_rows_behind(self, end_offset: int, log_end: int, log: FindingLog) -> None:
        """Tells rows behind the queue's last in the log that no interrupted flush can have left."""
        for start in self._files.starts:
            begin = max(end_offset, -(-start // ROW_SIZE))
            stop = (start + min(self._files.size(start), FILE_SIZE_MAX)) // ROW_SIZE
            for first in range(begin, stop, ROWS_AT_ONCE):
                rows = self._files.read(first, min(ROWS_AT_ONCE, stop - first))
                for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), first):
                    path, byte = self._files.locate(offset)
                    if not is_plausible(*row, byte=byte, log_end=log_end):
                        log.add(
                            FindingKind.CONSUME_QUEUE,
                            path,
                            byte,
                            expected=f"no row: the log gives the queue {end_offset} messages",
                            found=f"the row {QUEUE_ROW.pack(*row).hex()}",
                            advice=EXTRA,
                        )
                        return


def is_plausible(position: int, size: int, tags: int, *, byte: int, log_end: int) -> bool:
    """Whether a row that the log does not give may be there after a crash.

    It may be of an entry that a majority had and this replica had not synced when its power
    failed; or sectors of it were never written.
    """
    if byte // SECTOR_SIZE != (byte + ROW_SIZE - 1) // SECTOR_SIZE:
        return True
    if (position, size, tags) == (0, 0, 0):
        return True
    return log_end <= position < log_end + SEGMENT_SIZE_MAX and size >= RECORD_FIXED_SIZE


def find_extra(
    fs: Readable,
    directory: str,
    known: Collection[tuple[str, int]],
    log_end: int,
    log: FindingLog,
) -> None:
    """Tells directories of queues unknown to log and checkpoint, unless a crash left them."""
    if not fs.exists(directory):
        return
    for topic in fs.list_directory(directory):
        for name in fs.list_directory(f"{directory}/{topic}"):
            path = f"{directory}/{topic}/{name}"
            if not (name.isascii() and name.isdigit()):
                log.add(
                    FindingKind.CONSUME_QUEUE,
                    path,
                    0,
                    expected="the number of a queue",
                    found=name,
                    advice=EXTRA,
                )
            elif (topic, int(name)) not in known:
                QueueFiles(fs, path).check_rows_behind(0, log_end, log)
