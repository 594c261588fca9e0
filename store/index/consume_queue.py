"""A ConsumeQueue: which records of the commit log are the messages of one queue, in order.

The queue is derived from the committed log. New rows stay in memory until the next flush. If a
crash loses them, the node rebuilds them from the log behind the last checkpoint. So no request
waits for a write here. Rows on the disk are read by blocks, and each block is compared with its
seal. A damaged block is refused until it has been rebuilt from the log. In an unsealed block, the
positions of the rows must at least rise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

from crc32c import crc32c

from store.errors import DamagedError, DerivedDamageError, StoreError
from store.index.block_seals import (
    BLOCK_ROWS,
    ROW_SIZE,
    SEAL_SUFFIX,
    UNKNOWN,
    Tail,
    block_of,
    seal_byte,
)
from store.index.queue_rows import ROWS_PER_FILE, OpenFiles, QueueRows
from store.io.filesystem import Bytes
from store.log.layout import parse_segment_name, segment_name
from store.message.record import RECORD_FIXED_SIZE

_NO_ROWS = Tail(0)


class ConsumeQueue(QueueRows):
    """One queue. It holds the offsets ``first_offset`` to ``end_offset - 1``.

    Event loop, unless a method says otherwise. ``first_offset`` rises as the log expires.
    """

    __slots__ = ("_leftovers", "_recent", "end_offset", "first_offset", "tail")

    def __init__(
        self,
        files: OpenFiles,
        root: str,
        topic: str,
        queue_id: int,
        rows_per_file: int = ROWS_PER_FILE,
    ) -> None:
        super().__init__(files, root, topic, queue_id, rows_per_file)
        self._recent: bytes | bytearray = b""
        """The rows in memory. Most queues have none most of the time."""
        self.tail = _NO_ROWS
        """The tail of the rows on the disk."""
        self.first_offset = 0
        self.end_offset = 0
        """The offset that the next message gets."""
        self._leftovers = False
        """Whether an earlier process may have left rows behind the tail."""

    @property
    def flushed_end(self) -> int:
        """Rows below this offset are on disk."""
        return self.tail.end

    def append(self, first_offset: int, rows: Bytes) -> None:
        """Adds rows. Raises :class:`StoreError` if they do not begin at the end of the queue."""
        if first_offset != self.end_offset or len(rows) % ROW_SIZE:
            raise StoreError(
                f"{self.directory}: {len(rows)} bytes of rows from offset {first_offset} "
                f"do not follow offset {self.end_offset - 1}"
            )
        if self._recent:
            self._recent += rows
        else:
            self._recent = bytearray(rows)
        self.end_offset += len(rows) // ROW_SIZE

    # --- reading

    def read(self, offset: int, count: int) -> bytes:
        """At most ``count`` rows from ``offset`` on, 20 bytes each.

        There are fewer where the queue ends, or before a damaged block. Raises
        :class:`~store.errors.DerivedDamageError` if the first row is in one.
        """
        end = min(offset + count, self.end_offset)
        if offset >= end or offset < self.first_offset:
            return b""
        recent, flushed = max(offset, self.tail.end), min(end, self.tail.end)
        parts: list[bytes] = []
        while offset < flushed:
            begin, stop = block_of(offset, self.rows_per_file)
            try:
                parts.append(self._read_block(begin, min(stop, self.tail.end), offset, flushed))
            except DamagedError as error:
                if parts:
                    return b"".join(parts)
                raise self.damaged(begin, error) from error
            offset = stop
        if recent < end:
            start = (recent - self.tail.end) * ROW_SIZE
            parts.append(bytes(self._recent[start : start + (end - recent) * ROW_SIZE]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_trimmed(self, offset: int) -> bytes:
        """The row of an offset below :attr:`first_offset`, or nothing if it is there no more.

        Files with such rows alone are removed, and no rebuild makes such rows again. So it is no
        damage if one is missing or wrong.
        """
        if not 0 <= offset < self.first_offset:
            return b""
        if offset >= self.tail.end:
            start = (offset - self.tail.end) * ROW_SIZE
            return bytes(self._recent[start : start + ROW_SIZE])
        begin, stop = block_of(offset, self.rows_per_file)
        try:
            return self._read_block(begin, min(stop, self.tail.end), offset, offset + 1)
        except DamagedError:
            return b""

    def _read_block(self, begin: int, stop: int, first: int, end: int) -> bytes:
        """The rows of the block from ``begin`` to ``stop`` among those from ``first`` to ``end``.

        Raises :class:`DamagedError`.
        """
        end = min(end, stop)
        key = (self.directory, begin, stop)
        rows = self._files.block(key)
        if rows is None:
            crc = self.crc_of(begin, stop)
            if crc == UNKNOWN:
                rows = self.read_disk(first, end)
                self._check_unsealed(first, rows)
                return rows
            rows = self.read_disk(begin, stop)
            if crc32c(rows) != crc:
                raise DamagedError(*self.locate(begin), "CRC of a block of rows")
            self._files.keep_block(key, rows)
        return rows[(first - begin) * ROW_SIZE : (end - begin) * ROW_SIZE]

    def _check_unsealed(self, first: int, rows: bytes) -> None:
        before = -1
        for at in range(0, len(rows), ROW_SIZE):
            position = int.from_bytes(rows[at : at + 8], "big", signed=True)
            size = int.from_bytes(rows[at + 8 : at + 12], "big", signed=True)
            if position <= before or size < RECORD_FIXED_SIZE:
                path, byte = self.locate(first)
                raise DamagedError(path, byte + at, "the row leads to no record")
            before = position

    def is_sealed(self, offset: int) -> bool:
        """Whether a row on the disk is in a block with a seal. Raises :class:`DamagedError`."""
        begin, stop = block_of(offset, self.rows_per_file)
        return self.crc_of(begin, min(stop, self.tail.end)) != UNKNOWN

    def crc_of(self, begin: int, stop: int) -> int:
        """The CRC32C that the rows from ``begin`` to ``stop`` must have.

        A block begins at ``begin``. ``UNKNOWN`` if the rows are unsealed, or if neither the block
        nor the tail ends at ``stop``. Raises :class:`DamagedError` for a damaged seal.
        """
        if stop < block_of(begin, self.rows_per_file)[1]:
            return self.tail_crc(stop)
        seal = self.seal(begin)
        return UNKNOWN if seal is None else seal.crc

    def tail_crc(self, end: int) -> int:
        """The CRC32C of the tail if it ends at ``end``; else, or if it is unsealed, ``UNKNOWN``.

        Any thread.
        """
        tail = self.tail
        return tail.crc if tail.end == end else UNKNOWN

    def damaged(self, offset: int, error: DamagedError) -> DerivedDamageError:
        """The error to raise if the row of ``offset`` is damaged. Requests a check of its block."""
        position = self._log_position(block_of(offset, self.rows_per_file)[0])
        self._files.on_damage(position)
        return DerivedDamageError(error.path, error.position, error.reason, position)

    def _log_position(self, begin: int) -> int:
        """A position of the log at or before the first record of the block from ``begin`` on."""
        if begin == block_of(self.tail.end, self.rows_per_file)[0] and self.tail.position >= 0:
            return self.tail.position
        while begin + BLOCK_ROWS > self.first_offset:
            with suppress(DamagedError):
                seal = self.seal(begin)
                if seal is not None:
                    return seal.position
            if not begin:
                break
            begin, _ = block_of(begin - 1, self.rows_per_file)
        return 0

    # --- writing

    def write_until(self, end: int, *, sync: bool = True) -> Tail:
        """Writes the rows in memory below offset ``end``, of which there must be some.

        Returns the tail of the rows on the disk then, for :meth:`flushed`. Blocks. Background
        thread; rows may be appended meanwhile. For ``sync`` see :meth:`write_sealed`.
        """
        if self._leftovers:
            self._cut_leftovers()
            self._leftovers = False  # not before: it may fail for a lack of descriptors
        tail = self.tail
        rows = bytes(self._recent[: (end - tail.end) * ROW_SIZE])
        return self.write_sealed(tail, rows, sync=sync)

    def flushed(self, tail: Tail) -> None:
        """The rows up to the end of ``tail`` are on the disk. Frees their memory."""
        with self._files.lock:
            self._recent = self._recent[(tail.end - self.tail.end) * ROW_SIZE :] or b""
            self.tail = tail

    def seal_tail(self, tail: Tail) -> None:
        """Replaces the tail by ``tail``, unless rows came behind it. Any thread."""
        with self._files.lock:
            if self.tail.end == tail.end:
                self.tail = tail

    # --- start and expiry

    def restore(self, first_offset: int, tail: Tail) -> None:
        """Sets the queue to what a checkpoint covers. Rows behind ``tail`` are applied again.

        It opens no file, because there may be very many queues. Rows that are missing below the
        tail are found when they are read. Rows that an earlier process left behind the tail are not
        read, and are cut before the first new rows are written.
        """
        self.first_offset = first_offset
        self._recent = b""
        self.tail = tail
        self.end_offset = tail.end
        self._leftovers = True

    def _cut_leftovers(self) -> None:
        """Removes what an earlier process left behind the tail. Background thread."""
        fs, end = self._files.fs, self.tail.end
        directory, per_file = self.directory, self.rows_per_file
        try:
            names = fs.list_directory(directory)
        except FileNotFoundError:
            return
        block, _ = block_of(end, per_file)
        last = segment_name(end // per_file * per_file * ROW_SIZE)
        sizes = {last: end % per_file * ROW_SIZE, last + SEAL_SUFFIX: seal_byte(block, per_file)}
        for name in names:
            path, base = f"{directory}/{name}", name.removesuffix(SEAL_SUFFIX)
            if base < last or parse_segment_name(base) is None:
                continue
            if base > last or not sizes[last]:
                fs.remove(path)
                continue
            # An unreadable block cannot be cut. New rows will overwrite what lies behind the tail.
            with suppress(OSError), closing(fs.open(path)) as file:
                if file.size() > sizes[name]:
                    file.truncate(sizes[name])

    def expire(self, position: int) -> None:
        """Drops the rows whose record lies below ``position``, and files that have only such
        rows."""
        self.first_offset = self.offset_at(position)
        self.release(self.first_offset)

    def offset_at(self, position: int) -> int:
        """The first offset whose record lies at ``position`` or later; else the end offset."""
        return self._first_at(lambda at, _size: at >= position)

    def release(self, first_offset: int) -> None:
        """Removes the files that hold only rows below ``first_offset``.

        An older checkpoint may still need rows below :attr:`first_offset`. So their files can be
        removed later.
        """
        fs = self._files.fs
        if not fs.exists(self.directory):
            return
        rows_end = min(first_offset, self.tail.end)
        for name in fs.list_directory(self.directory):
            start = parse_segment_name(name.removesuffix(SEAL_SUFFIX))
            if start is not None and start // ROW_SIZE + self.rows_per_file <= rows_end:
                path = f"{self.directory}/{name}"
                self._files.forget(path)
                fs.remove(path)

    # --- searching

    def _first_at(self, holds: Callable[[int, int], bool]) -> int:
        """The first offset whose row satisfies ``holds(position, size)``; else the end offset.

        Once ``holds`` is true it must be true for all later rows.
        """
        low, high = self.first_offset, self.end_offset
        while low < high:
            middle = (low + high) // 2
            if holds(*self._place(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def search_time(self, timestamp: int, store_time: Callable[[int, int], int]) -> int:
        """The offset for a store time in ms, as RocketMQ 4.9 answers code 29.

        It is the first message of exactly that time. If there is none, it is the nearer neighbour,
        and of two equally near the earlier one. If the time lies outside the queue, it is the first
        or the last message. It is 0 for an empty queue. ``store_time(position, size)`` reads the
        time of one record.
        """
        if self.end_offset == self.first_offset:
            return 0
        later = self._first_at(lambda position, size: store_time(position, size) >= timestamp)
        if later == self.end_offset:
            return later - 1
        if later == self.first_offset:
            return later
        after = store_time(*self._place(later)) - timestamp
        before = timestamp - store_time(*self._place(later - 1))
        return later if after < before or after == 0 else later - 1

    def first_from(self, timestamp: int, store_time: Callable[[int, int], int]) -> int:
        """The first offset stored at ``timestamp`` (ms) or later; else the end offset.

        This is code 29 of RocketMQ 5 with the boundary ``lower``.
        """
        return self._first_at(lambda position, size: store_time(position, size) >= timestamp)

    def last_until(self, timestamp: int, store_time: Callable[[int, int], int]) -> int:
        """The last offset stored at ``timestamp`` (ms) or before; else 0.

        This is code 29 of RocketMQ 5 with the boundary ``upper``.
        """
        later = self._first_at(lambda position, size: store_time(position, size) > timestamp)
        return later - 1 if later > self.first_offset else 0

    def _place(self, offset: int) -> tuple[int, int]:
        """Position and size of the record of one row."""
        row = self.read(offset, 1)
        return int.from_bytes(row[:8], "big"), int.from_bytes(row[8:12], "big")
