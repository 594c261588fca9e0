"""A ConsumeQueue: which records of the commit log are the messages of one queue, in order.

``consumequeue/<topic>/<queue>/<20 digits>``: rows of 20 bytes, big-endian (i64 position of the
record, i32 its size, i64 tags code). Row k lies at byte k*20; a file is named by the byte of its
first row, and grows as rows come.

The queue is derived from the committed log. New rows stay in memory until the next flush, and what
a crash takes is rebuilt from the log behind the last checkpoint, so nothing here is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from store.errors import DamagedError, StoreError
from store.io.filesystem import Bytes, File, FileSystem
from store.log.layout import parse_segment_name, segment_name

ROW_SIZE = 20
ROWS_PER_FILE = 300_000
BARRIER_QUEUES = 64
"""So many queues to flush, and one barrier for all is cheaper than three syncs for each."""


class OpenFiles:
    """The files of all queues, the least recently used closed when too many are open."""

    def __init__(self, fs: FileSystem, open_max: int = 256) -> None:
        self.fs = fs
        self._open_max = open_max
        self._files: dict[str, File] = {}

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; ``FileNotFoundError`` where it is absent and ``create`` is false."""
        file = self._files.pop(path, None)
        if file is None:
            file = self.fs.open(path, create=create)
        self._files[path] = file
        while len(self._files) > self._open_max:
            # Not closed here: another thread may be reading it. The last reference closes it.
            del self._files[next(iter(self._files))]
        return file

    def forget(self, prefix: str) -> None:
        """Drops the files below a directory."""
        for path in [path for path in self._files if path.startswith(prefix)]:
            del self._files[path]


class QueueFlush:
    """Rows on their way to the disk; see :meth:`ConsumeQueue.begin_flush`."""

    def __init__(self, queue: ConsumeQueue, first_offset: int, rows: bytes) -> None:
        self._queue = queue
        self._first_offset = first_offset
        self._rows = rows

    def run(self, *, sync: bool = True) -> None:
        """Writes, and syncs unless somebody else will. Blocks; runs on a background thread."""
        self._queue.write(self._first_offset, self._rows, sync=sync)

    def finish(self) -> None:
        """Gives the memory back; on the event loop."""
        self._queue.flushed(self._first_offset + len(self._rows) // ROW_SIZE)


class BatchedQueueFlush:
    """The rows of many queues on their way to the disk: one barrier instead of syncs of each."""

    def __init__(self, fs: FileSystem, directory: str, flushes: Sequence[QueueFlush]) -> None:
        self._fs = fs
        self._directory = directory
        self._flushes = flushes

    def run(self) -> None:
        """As :meth:`QueueFlush.run`."""
        for flush in self._flushes:
            flush.run(sync=False)
        self._fs.sync_all(self._directory)

    def finish(self) -> None:
        """As :meth:`QueueFlush.finish`."""
        for flush in self._flushes:
            flush.finish()


class ConsumeQueue:
    """One queue. Offsets ``first_offset`` .. ``end_offset - 1`` exist.

    Used on the event loop, but for ``QueueFlush.run``. ``first_offset`` moves as the log expires.
    """

    __slots__ = ("_directory", "_files", "_rows_per_file", "_tail", "_tail_offset", "first_offset")

    def __init__(
        self, files: OpenFiles, directory: str, rows_per_file: int = ROWS_PER_FILE
    ) -> None:
        self._files = files
        self._directory = directory
        self._rows_per_file = rows_per_file
        self._tail = bytearray()
        self._tail_offset = 0
        self.first_offset = 0

    @property
    def end_offset(self) -> int:
        """The offset that the next message gets."""
        return self._tail_offset + len(self._tail) // ROW_SIZE

    @property
    def flushed_end(self) -> int:
        """Rows below this offset are on disk."""
        return self._tail_offset

    @property
    def dirty(self) -> bool:
        """Whether rows wait in memory."""
        return bool(self._tail)

    def append(self, first_offset: int, rows: Bytes) -> None:
        """Adds rows; :class:`StoreError` unless they continue the queue without a gap."""
        if first_offset != self.end_offset or len(rows) % ROW_SIZE:
            raise StoreError(
                f"{self._directory}: {len(rows)} bytes of rows from offset {first_offset} "
                f"do not follow offset {self.end_offset - 1}"
            )
        self._tail += rows

    def read(self, offset: int, count: int) -> bytes:
        """Rows from ``offset`` on, fewer where the queue or its memory part ends."""
        end = min(offset + count, self.end_offset)
        if offset >= end or offset < self.first_offset:
            return b""
        if offset >= self._tail_offset:
            start = (offset - self._tail_offset) * ROW_SIZE
            return bytes(self._tail[start : start + (end - offset) * ROW_SIZE])
        return self._read_file(offset, min(end, self._tail_offset) - offset)

    def _read_file(self, offset: int, count: int) -> bytes:
        count = min(count, self._rows_per_file - offset % self._rows_per_file)
        rows = self._read_at(offset, count)
        if len(rows) != count * ROW_SIZE:
            path, byte = self.locate(offset)
            raise DamagedError(path, byte + len(rows), "the file ends too early")
        return rows

    def _read_at(self, offset: int, count: int) -> bytes:
        """Rows of one file, fewer where it ends."""
        path, byte = self.locate(offset)
        try:
            return self._files.get(path).pread(count * ROW_SIZE, byte)
        except FileNotFoundError:
            raise DamagedError(path, 0, f"the file of offset {offset} is missing") from None
        except OSError as error:
            # Not as it is: whoever asks on the event loop would have it taken for a socket's.
            raise DamagedError(path, byte, f"cannot be read: {error}") from error

    def locate(self, offset: int) -> tuple[str, int]:
        """The file that has the row of ``offset`` once it is on the disk, and its byte there."""
        return self._path(offset), offset % self._rows_per_file * ROW_SIZE

    def _path(self, offset: int) -> str:
        first = offset - offset % self._rows_per_file
        return f"{self._directory}/{segment_name(first * ROW_SIZE)}"

    # --- flushing

    def begin_flush(self) -> QueueFlush | None:
        """The rows in memory as a job, or None if there are none. One at a time."""
        return QueueFlush(self, self._tail_offset, bytes(self._tail)) if self._tail else None

    def write(self, first_offset: int, rows: bytes, *, sync: bool = True) -> None:
        """Writes rows to their files; called by the flush, off the event loop.

        Without ``sync`` they are durable after a :meth:`~store.io.filesystem.FileSystem.sync_all`.
        """
        fs = self._files.fs
        fs.make_directories(self._directory, sync=sync)
        created = False
        view = memoryview(rows)
        while view:
            path = self._path(first_offset)
            in_file = first_offset % self._rows_per_file
            count = min(len(view) // ROW_SIZE, self._rows_per_file - in_file)
            if not fs.exists(path):
                created = True
            file = fs.open(path, create=True)
            try:
                file.pwrite(view[: count * ROW_SIZE], in_file * ROW_SIZE)
                if sync:
                    file.datasync()
            finally:
                file.close()
            view = view[count * ROW_SIZE :]
            first_offset += count
        if created and sync:
            fs.sync_directory(self._directory)

    def flushed(self, end_offset: int) -> None:
        """Rows below ``end_offset`` are on disk."""
        del self._tail[: (end_offset - self._tail_offset) * ROW_SIZE]
        self._tail_offset = end_offset

    # --- start and expiry

    def restore(self, first_offset: int, end_offset: int) -> None:
        """Takes over what a checkpoint covers; rows behind it are cut, for they will come again.

        Raises :class:`DamagedError` where rows below ``end_offset`` are missing, or where the
        disk cannot read what the next one is to follow.
        """
        fs = self._files.fs
        self.first_offset = first_offset
        self._tail = bytearray()
        self._tail_offset = end_offset
        behind = -(-end_offset // self._rows_per_file) * self._rows_per_file
        names = fs.list_directory(self._directory) if fs.exists(self._directory) else []
        for name in names:
            if parse_segment_name(name) is not None and name >= segment_name(behind * ROW_SIZE):
                fs.remove(f"{self._directory}/{name}")
        if end_offset % self._rows_per_file and fs.exists(self._path(end_offset)):
            # To a block that cannot be read no rows can be added, and nothing of it can be cut.
            self._read_at(end_offset - 1, 1)
        if end_offset > first_offset:
            in_file = (end_offset - 1) % self._rows_per_file + 1
            path = self._path(end_offset - 1)
            size = self._files.get(path).size() if fs.exists(path) else 0
            if size < in_file * ROW_SIZE:
                raise DamagedError(path, size, f"rows up to offset {end_offset - 1} are missing")
            if size > in_file * ROW_SIZE:
                self._files.get(path).truncate(in_file * ROW_SIZE)

    def expire(self, position: int) -> None:
        """Forgets the rows whose record lies below ``position``, and files that hold only such."""
        self.first_offset = self.offset_at(position)
        self.release(self.first_offset)

    def offset_at(self, position: int) -> int:
        """The first offset whose record does not lie below ``position``; the end where none."""
        return self._first_at(lambda at, _size: at >= position)

    def release(self, first_offset: int) -> None:
        """Removes the files that hold only rows below ``first_offset``.

        An older checkpoint may need rows that the queue itself has forgotten, so forgetting them
        (setting :attr:`first_offset`) and giving up their files can be done one after the other.
        """
        fs = self._files.fs
        if not fs.exists(self._directory):
            return
        rows_end = min(first_offset, self._tail_offset)
        for name in fs.list_directory(self._directory):
            start = parse_segment_name(name)
            if start is not None and start // ROW_SIZE + self._rows_per_file <= rows_end:
                path = f"{self._directory}/{name}"
                self._files.forget(path)
                fs.remove(path)

    # --- searching

    def _first_at(self, holds: Callable[[int, int], bool]) -> int:
        """The first offset whose (position, size) satisfies ``holds``, which never turns false
        again behind it; the end offset where none does."""
        low, high = self.first_offset, self.end_offset
        while low < high:
            middle = (low + high) // 2
            row = self.read(middle, 1)
            if holds(int.from_bytes(row[:8], "big"), int.from_bytes(row[8:12], "big")):
                high = middle
            else:
                low = middle + 1
        return low

    def search_time(self, timestamp: int, store_time: Callable[[int, int], int]) -> int:
        """The offset for a store time in ms, as RocketMQ 4.9 answers code 29.

        The message of exactly that time (the first of them), else the nearer neighbour, the
        earlier one on a tie; the first or last message where the time lies outside; 0 for an
        empty queue. ``store_time(position, size)`` reads the time of one record.
        """
        if self.end_offset == self.first_offset:
            return 0
        later = self._first_at(lambda position, size: store_time(position, size) >= timestamp)
        if later == self.end_offset:
            return later - 1
        if later == self.first_offset:
            return later
        after = self._time_of(later, store_time) - timestamp
        before = timestamp - self._time_of(later - 1, store_time)
        return later if after < before or after == 0 else later - 1

    def first_from(self, timestamp: int, store_time: Callable[[int, int], int]) -> int:
        """The first offset stored at ``timestamp`` (ms) or later, the end offset if none was:
        code 29 of RocketMQ 5 with the boundary ``lower``."""
        return self._first_at(lambda position, size: store_time(position, size) >= timestamp)

    def last_until(self, timestamp: int, store_time: Callable[[int, int], int]) -> int:
        """The last offset stored at ``timestamp`` (ms) or before, 0 if none was: code 29 of
        RocketMQ 5 with the boundary ``upper``."""
        later = self._first_at(lambda position, size: store_time(position, size) > timestamp)
        return later - 1 if later > self.first_offset else 0

    def _time_of(self, offset: int, store_time: Callable[[int, int], int]) -> int:
        row = self.read(offset, 1)
        return store_time(int.from_bytes(row[:8], "big"), int.from_bytes(row[8:12], "big"))


class ConsumeQueues:
    """All queues of a replica, by topic and queue id; files below ``directory``."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        rows_per_file: int = ROWS_PER_FILE,
        open_max: int = 256,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._rows_per_file = rows_per_file
        self._files = OpenFiles(fs, open_max)
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self._in_order: Sequence[tuple[str, int, ConsumeQueue]] | None = None

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message."""
        queues = self._queues.get(topic)
        return None if queues is None else queues.get(queue_id)

    def of_topic(self, topic: str) -> Mapping[int, ConsumeQueue]:
        """The topic's queues that ever had a message, by id."""
        return self._queues.get(topic, {})

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, begun at offset 0 if there is none."""
        queues = self._queues.setdefault(topic, {})
        queue = queues.get(queue_id)
        if queue is None:
            directory = f"{self._directory}/{topic}/{queue_id}"
            queue = queues[queue_id] = ConsumeQueue(self._files, directory, self._rows_per_file)
            self._in_order = None
        return queue

    def all(self) -> Sequence[tuple[str, int, ConsumeQueue]]:
        """Every queue with its topic and id, in order."""
        if self._in_order is None:
            self._in_order = [
                (topic, queue_id, queue)
                for topic, queues in sorted(self._queues.items())
                for queue_id, queue in sorted(queues.items())
            ]
        return self._in_order

    def begin_flush(self) -> Sequence[QueueFlush | BatchedQueueFlush]:
        """The jobs that make every queue durable as it is now."""
        begun = [queue.begin_flush() for _, _, queue in self.all() if queue.dirty]
        flushes = [flush for flush in begun if flush is not None]
        if len(flushes) < BARRIER_QUEUES:
            return flushes
        return [BatchedQueueFlush(self._fs, self._directory, flushes)]

    def lengths(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, first offset, end offset) of every queue, for a checkpoint."""
        return [
            (topic, queue_id, queue.first_offset, queue.end_offset)
            for topic, queue_id, queue in self.all()
        ]

    def restore(self, lengths: Iterable[tuple[str, int, int, int]]) -> None:
        """Takes over what a checkpoint lists, and drops the files of queues that it does not.

        Raises :class:`DamagedError` where rows that the checkpoint covers are missing.
        """
        self._queues = {}
        self._in_order = None
        self._files.forget(f"{self._directory}/")
        for topic, queue_id, first_offset, end_offset in lengths:
            self.get_or_create(topic, queue_id).restore(first_offset, end_offset)
        if not self._fs.exists(self._directory):
            return
        for topic in self._fs.list_directory(self._directory):
            known = self._queues.get(topic, {})
            for name in self._fs.list_directory(f"{self._directory}/{topic}"):
                if not name.isdigit() or int(name) not in known:
                    self._fs.remove_tree(f"{self._directory}/{topic}/{name}")

    def delete(self, topic: str) -> None:
        """Drops a topic's queues and their files."""
        self._queues.pop(topic, None)
        self._in_order = None
        self._files.forget(f"{self._directory}/{topic}/")
        self._fs.remove_tree(f"{self._directory}/{topic}")

    def expire(self, position: int) -> None:
        """Moves every queue's first offset past records below ``position``."""
        for _, _, queue in self.all():
            queue.expire(position)
