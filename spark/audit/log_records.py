"""Reads single records of a replica's log, by position."""

from __future__ import annotations

from store.errors import CorruptRecordError
from store.io.filesystem import ReadableFileSystem
from store.log.log_reader import HoleReason, LogReader, SegmentFiles
from store.message.record import MessageRecord, decode_record


class LogRecords:
    """The records in the log of the replica in ``directory``."""

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
        try:
            head, missing = self._reader.read(position, 4)
            if missing is HoleReason.MISSING:
                return None
            if len(head) < 4:
                raise CorruptRecordError("record is cut short")
            data, _missing = self._reader.read(position, int.from_bytes(head, "big"))
        finally:
            self._segments.close()
        return decode_record(data)
