"""The files of one ConsumeQueue: rows, and the seals of their blocks.

``consumequeue/<topic>/<queue>/<20 digits>``: rows of 20 bytes, big-endian (i64 position of the
record, i32 its size, i64 tags code). Row k lies at byte k*20. A file is named by the byte of its
first row, and grows as rows come. The seals of its blocks are in a file of the same name with the
suffix ``.crc`` (:mod:`store.index.block_seals`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing

from store.errors import DamagedError
from store.index.block_seals import (
    ROW_SIZE,
    SEAL_SIZE,
    SEAL_SUFFIX,
    Seal,
    Tail,
    extend,
    seal_byte,
    unpack_seal,
)
from store.io.filesystem import Bytes, File, FileSystem
from store.io.unreadable_blocks import UNREADABLE, overwrite_blocks, overwrite_whole_blocks
from store.log.layout import segment_name

ROWS_PER_FILE = 300_000
NAMES_KEPT = 4096
"""For this many files it is remembered that their names are durable. A write to another file syncs
its directory."""

BLOCKS_KEPT = 64
"""This many checked blocks of all queues stay in memory, for readers that read on."""


class OpenFiles:
    """The open files of all queues. If too many are open, the least recently used is closed."""

    def __init__(self, fs: FileSystem, open_max: int = 256) -> None:
        self.fs = fs
        self._open_max = open_max
        self._files: dict[str, File] = {}
        self._blocks: dict[tuple[str, int, int], bytes] = {}
        self._named: dict[str, None] = {}
        self.on_damage: Callable[[int], None] = lambda _position: None
        """Called with the position of the log from which on rows must be rebuilt."""
        self.lock = threading.Lock()
        """Held to replace the tail of a queue."""
        self._table = threading.Lock()
        """Held to look at, or change, what is kept: readers are on the event loop, and the
        background thread drops what it has written again."""

    def block(self, key: tuple[str, int, int]) -> bytes | None:
        """The rows of a checked block, if they are in memory.

        ``key``: directory of the queue, first offset of the block, end offset.
        """
        with self._table:
            rows = self._blocks.pop(key, None)
            if rows is not None:
                self._blocks[key] = rows
        return rows

    def keep_block(self, key: tuple[str, int, int], rows: bytes) -> None:
        """See :meth:`block`."""
        with self._table:
            self._blocks[key] = rows
            if len(self._blocks) > BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]

    def has_durable_name(self, path: str) -> bool:
        """Whether this process has made the name of a file durable. An earlier process may have
        died before it did that for its files."""
        with self._table:
            return path in self._named

    def note_durable_name(self, path: str) -> None:
        """See :meth:`has_durable_name`."""
        with self._table:
            self._named[path] = None
            if len(self._named) > NAMES_KEPT:
                del self._named[next(iter(self._named))]

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; ``FileNotFoundError`` if it is absent and ``create`` is false."""
        with self._table:
            file = self._files.pop(path, None)
            if file is not None:
                self._files[path] = file
                return file
        file = self.fs.open(path, create=create)
        with self._table:
            self._files[path] = file
            while len(self._files) > self._open_max:
                # Another thread may be reading the file, so it is closed by its last reference.
                del self._files[next(iter(self._files))]
        return file

    def forget(self, prefix: str) -> None:
        """Drops all files and blocks whose path begins with ``prefix``."""
        with self._table:
            for path in [path for path in self._files if path.startswith(prefix)]:
                del self._files[path]
            for path in [path for path in self._named if path.startswith(prefix)]:
                del self._named[path]
            for key in [key for key in self._blocks if f"{key[0]}/".startswith(prefix)]:
                del self._blocks[key]


class QueueRows:
    """The rows of one queue on the disk. Any thread reads; only the background thread writes."""

    __slots__ = ("_files", "_root", "queue_id", "rows_per_file", "topic")

    def __init__(
        self,
        files: OpenFiles,
        root: str,
        topic: str,
        queue_id: int,
        rows_per_file: int = ROWS_PER_FILE,
    ) -> None:
        """``root``: the directory of all queues."""
        self._files = files
        self._root = root
        self.topic = topic
        self.queue_id = queue_id
        self.rows_per_file = rows_per_file

    @property
    def directory(self) -> str:
        """The queue's own. It is not kept: there may be very many queues."""
        return f"{self._root}/{self.topic}/{self.queue_id}"

    def on_disk(self) -> QueueRows:
        """The same rows, with open files of its own."""
        files = OpenFiles(self._files.fs)
        return QueueRows(files, self._root, self.topic, self.queue_id, self.rows_per_file)

    def forget_files(self) -> None:
        """The next access opens the files again, because others may have replaced them."""
        self._files.forget(f"{self.directory}/")

    def locate(self, offset: int) -> tuple[str, int]:
        """The path of the file for the row of ``offset``, and the byte of the row in it."""
        return self._path(offset), offset % self.rows_per_file * ROW_SIZE

    def _path(self, offset: int) -> str:
        first = offset - offset % self.rows_per_file
        return f"{self.directory}/{segment_name(first * ROW_SIZE)}"

    def read_disk(self, first: int, end: int) -> bytes:
        """Rows of one file, unchecked. Raises :class:`DamagedError` if they cannot be read."""
        path, byte = self.locate(first)
        size = (end - first) * ROW_SIZE
        try:
            rows = self._files.get(path).pread(size, byte)
        except FileNotFoundError:
            raise DamagedError(path, 0, "the file is missing") from None
        except OSError as error:
            # An OSError on the event loop would be taken for an error of a socket.
            raise DamagedError(path, byte, f"cannot be read: {error}") from error
        if len(rows) != size:
            raise DamagedError(path, byte + len(rows), "the file ends too early")
        return rows

    def seal(self, begin: int) -> Seal | None:
        """The seal of the block from ``begin`` on. Raises :class:`DamagedError` if it is wrong."""
        path = self._path(begin) + SEAL_SUFFIX
        byte = seal_byte(begin, self.rows_per_file)
        try:
            return unpack_seal(self._files.get(path).pread(SEAL_SIZE, byte))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedError(path, byte, str(error)) from error
        except OSError as error:
            raise DamagedError(path, byte, f"cannot be read: {error}") from error

    def write_sealed(self, tail: Tail, rows: bytes, *, sync: bool = True) -> Tail:
        """Writes rows behind a tail, and the seals of the blocks that they complete.

        Returns the new tail. Background thread. Without ``sync`` nothing is durable before a
        :meth:`~store.io.filesystem.FileSystem.sync_all`.
        """
        following, seals = extend(tail, rows, self.rows_per_file)
        self.write(tail.end, rows, seals, sync=sync)
        return following

    def write(
        self,
        first_offset: int,
        rows: bytes,
        seals: Sequence[tuple[int, Seal]] = (),
        *,
        sync: bool = True,
    ) -> None:
        """Writes rows to their files, then seals, each with the first offset of its block.

        The blocks must follow each other. For ``sync`` see :meth:`write_sealed`.
        """
        if not first_offset:  # the queue is new
            self._files.fs.make_directories(self.directory, sync=sync)
        pieces: list[tuple[str, int, Bytes]] = []
        at = 0
        while at < len(rows):
            in_file = first_offset % self.rows_per_file
            size = (self.rows_per_file - in_file) * ROW_SIZE
            piece = rows[at : at + size]
            pieces.append((self._path(first_offset), in_file * ROW_SIZE, piece))
            first_offset += self.rows_per_file - in_file
            at += len(piece)
        packed: dict[str, tuple[int, bytearray]] = {}
        for begin, seal in seals:
            path = self._path(begin) + SEAL_SUFFIX
            _, data = packed.setdefault(path, (seal_byte(begin, self.rows_per_file), bytearray()))
            data += seal.pack()
        pieces += [(path, *piece) for path, piece in packed.items()]
        write = self._write_synced if sync else self._write
        try:
            write(pieces)
        except FileNotFoundError:
            self._files.fs.make_directories(self.directory, sync=sync)
            write(pieces)

    def _write_synced(self, pieces: Sequence[tuple[str, int, Bytes]]) -> None:
        files, fs = self._files, self._files.fs
        named = all(files.has_durable_name(path) and fs.exists(path) for path, _, _ in pieces)
        for path, byte, data in pieces:
            with closing(fs.open(path, create=True)) as file:
                # If a block is unreadable, its other rows are lost here and rebuilt from the log.
                overwrite_blocks(file, data, byte, may_cut=True)
                file.datasync()
        if not named:
            fs.sync_directory(self.directory)
            for path, _, _ in pieces:
                files.note_durable_name(path)

    def _write(self, pieces: Sequence[tuple[str, int, Bytes]]) -> None:
        fs = self._files.fs
        for path, byte, data in pieces:
            try:
                fs.write(path, data, byte)
            except OSError as error:
                if error.errno not in UNREADABLE:
                    raise
                with closing(fs.open(path)) as file:
                    if not overwrite_whole_blocks(file, data, byte, may_cut=True):
                        raise
