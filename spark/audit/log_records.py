"""Reads single records of a replica's log, by position."""

from __future__ import annotations

from store.io.filesystem import ReadableFileSystem
from store.log.log_reader import HoleReason, LogReader, SegmentFiles
from store.message.record import MessageRecord, decode_record, stated_size

FIRST_READ = 4096
"""Pace: bytes of a first request. Most records have fewer."""


class LogRecords:
    """The records in the log of the replica in ``directory``.

    The segment of the last record stays open. So records are best read in the order of the log, and
    :meth:`close` called behind them.
    """

    def __init__(self, fs: ReadableFileSystem, directory: str, segment_size: int) -> None:
        self._segments = SegmentFiles(fs, directory, segment_size)
        self._reader = LogReader(self._segments)

    def locate(self, position: int) -> tuple[str, int]:
        """The segment file with a position, and the byte in it."""
        return self._segments.locate(position)

    def read(self, position: int) -> MessageRecord | None:
        """The record at a position; ``None`` if there is no such segment.

        Raises :class:`~store.errors.CorruptRecordError` if there is no intact record, and
        :class:`~store.errors.UnreadableError`.
        """
        data, missing = self._reader.read(position, FIRST_READ)
        if missing is HoleReason.MISSING:
            return None
        size = stated_size(data)
        if size > len(data):
            data, _missing = self._reader.read(position, size)
        return decode_record(data)

    def close(self) -> None:
        """Closes the segment that is open. The next read opens one again."""
        self._segments.close()
