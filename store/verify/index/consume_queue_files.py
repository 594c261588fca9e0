"""The files of one ConsumeQueue: names, sizes, rows, and rows behind the end of the queue."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from itertools import pairwise

from store.index.block_seals import ROW_SIZE, SEAL_SUFFIX
from store.index.queue_rows import ROWS_PER_FILE
from store.io.filesystem import ReadableFileSystem
from store.log.layout import SEGMENT_SIZE_MAX, parse_segment_name
from store.message.batch import QUEUE_ROW
from store.message.record import RECORD_FIXED_SIZE
from store.verify.files.row_files import RowFiles
from store.verify.findings import FindingKind, FindingLog

READ_AHEAD_ROWS = 400
ROWS_AT_ONCE = 1 << 14
SECTOR_SIZE = 512
FILE_SIZE_MAX = ROWS_PER_FILE * ROW_SIZE
EXTRA = "the next checkpoint of a running node removes it"


class QueueFiles:
    """The files of one queue. It reads ahead, so that one read serves many runs."""

    def __init__(
        self, fs: ReadableFileSystem, directory: str, *, read_ahead: int = READ_AHEAD_ROWS
    ) -> None:
        self._fs = fs
        self.directory = directory
        self._read_ahead = read_ahead
        self._buffer = b""
        self._buffer_first = 0

    @cached_property
    def _files(self) -> RowFiles:
        return RowFiles(self._fs, self.directory, ROW_SIZE)

    @property
    def starts(self) -> Sequence[int]:
        """The first byte of each file of rows, in order."""
        return self._files.starts

    @property
    def others(self) -> Sequence[str]:
        """The names of all other files."""
        return self._files.strays

    def rows(self, first: int, count: int) -> bytes:
        """Rows from offset ``first`` on, fewer if the files end."""
        at = (first - self._buffer_first) * ROW_SIZE
        size = count * ROW_SIZE
        if at < 0 or at + size > len(self._buffer):
            self._buffer = self._files.read(first, max(count, self._read_ahead))
            self._buffer_first, at = first, 0
        return self._buffer[at : at + size]

    def locate(self, offset: int) -> tuple[str, int]:
        return self._files.locate(offset)

    def check_shape(self, low: int, high: int | None, log: FindingLog) -> None:
        """Checks names and sizes of the files that begin at byte ``low`` to before ``high``.

        Other names are findings if ``low`` is 0.
        """
        starts = self._files.starts
        sizes = {
            start: self._files.size(start)
            for start in starts
            if low <= start and (high is None or start < high)
        }
        for start, size in sizes.items():
            if size > FILE_SIZE_MAX:
                self._report_size(start, FILE_SIZE_MAX, size, "", log)
        for name in self._files.strays if low == 0 else ():
            if parse_segment_name(name.removesuffix(SEAL_SUFFIX)) is not None:
                continue
            log.add(
                FindingKind.CONSUME_QUEUE,
                f"{self.directory}/{name}",
                0,
                "only files named by 20 digits, and .crc",
                "another file",
                EXTRA,
            )
        for start, following in pairwise(starts):
            if sizes.get(start, 0) > following - start:
                size_max = following - start
                self._report_size(start, size_max, sizes[start], " before the next file", log)

    def _report_size(self, start: int, most: int, size: int, detail: str, log: FindingLog) -> None:
        log.add(
            FindingKind.CONSUME_QUEUE,
            self._files.path(start),
            most,
            f"at most {most} bytes{detail}",
            f"{size} bytes",
            EXTRA,
        )

    def check_rows_behind(self, end_offset: int, log_end: int, log: FindingLog) -> None:
        """Reports the first row behind the end of the queue that no interrupted flush leaves."""
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
                            f"no row: the log gives the queue {end_offset} messages",
                            f"the row {QUEUE_ROW.pack(*row).hex()}",
                            EXTRA,
                        )
                        return


def is_plausible(position: int, size: int, tags: int, *, byte: int, log_end: int) -> bool:
    """Whether a crash may leave this row, which the log does not have.

    It may belong to an entry that was committed, but that this replica had not synced when its
    power failed. Or some of its sectors were never written.
    """
    if byte // SECTOR_SIZE != (byte + ROW_SIZE - 1) // SECTOR_SIZE:
        return True
    if (position, size, tags) == (0, 0, 0):
        return True
    return log_end <= position < log_end + SEGMENT_SIZE_MAX and size >= RECORD_FIXED_SIZE


def find_extra(
    fs: ReadableFileSystem,
    directory: str,
    known: Set[tuple[str, int]],
    log_end: int,
    log: FindingLog,
) -> None:
    """Reports directories of queues that neither log nor checkpoint has.

    Those that a crash may have left are no findings.
    """
    if not fs.exists(directory):
        return
    for topic in fs.list_directory(directory):
        for name in fs.list_directory(f"{directory}/{topic}"):
            path = f"{directory}/{topic}/{name}"
            if not (name.isascii() and name.isdigit()):
                log.add(FindingKind.CONSUME_QUEUE, path, 0, "the number of a queue", name, EXTRA)
            elif (topic, int(name)) not in known:
                QueueFiles(fs, path).check_rows_behind(0, log_end, log)
