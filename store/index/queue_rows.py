"""The files of one ConsumeQueue: rows, and the seals of their blocks.

``consumequeue/<topic>/<queue>/<20 digits>``: rows of 20 bytes, big-endian (i64 position of the
record, i32 its size, i64 tags code). Row k lies at byte k*20; a file is named by the byte of its
first row, and grows as rows come. A file of the same name and ``.crc`` has the seals of its blocks
(:mod:`store.index.block_seals`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

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
from store.io.unreadable_blocks import overwrite_blocks
from store.log.layout import segment_name

ROWS_PER_FILE = 300_000
NAMES_KEPT = 4096
"""So many files are remembered as having durable names. A write to another file syncs its
directory."""

BLOCKS_KEPT = 64
"""So many checked blocks of all queues stay in memory for readers that read on."""


class OpenFiles:
    """The files of all queues, the least recently used closed when too many are open."""

    def __init__(self, fs: FileSystem, open_max: int = 256) -> None:
        self.fs = fs
        self._open_max = open_max
        self._files: dict[str, File] = {}
        self._blocks: dict[tuple[str, int, int], bytes] = {}
        self._named: dict[str, None] = {}
        self.on_damage: Callable[[int], None] = lambda _position: None
        """Told of a place of the log from which on rows have to be made again."""
        self.lock = threading.Lock()
        """Held to replace the tail of a queue."""

    def block(self, key: tuple[str, int, int]) -> bytes | None:
        """The rows of a block that was found to be whole: directory, first offset, end."""
        rows = self._blocks.pop(key, None)
        if rows is not None:
            self._blocks[key] = rows
        return rows

    def keep_block(self, key: tuple[str, int, int], rows: bytes) -> None:
        """See :meth:`block`."""
        self._blocks[key] = rows
        if len(self._blocks) > BLOCKS_KEPT:
            del self._blocks[next(iter(self._blocks))]

    def has_durable_name(self, path: str) -> bool:
        """Whether this process has made the name of a file durable. One that it found may have been
        left by a process that died before it could."""
        return path in self._named

    def note_durable_name(self, path: str) -> None:
        """See :meth:`has_durable_name`."""
        self._named[path] = None
        if len(self._named) > NAMES_KEPT:
            del self._named[next(iter(self._named))]

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; ``FileNotFoundError`` if it is absent and ``create`` is false."""
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
        for path in [path for path in list(self._named) if path.startswith(prefix)]:
            self._named.pop(path, None)
        for key in [key for key in self._blocks if f"{key[0]}/".startswith(prefix)]:
            del self._blocks[key]


class QueueRows:
    """Any thread; writes take turns, all on the background thread."""

    __slots__ = ("_directory", "_files", "rows_per_file")

    def __init__(
        self, files: OpenFiles, directory: str, rows_per_file: int = ROWS_PER_FILE
    ) -> None:
        self._files = files
        self._directory = directory
        self.rows_per_file = rows_per_file

    def on_disk(self) -> QueueRows:
        """The same with files that are opened by their names now."""
        return QueueRows(OpenFiles(self._files.fs), self._directory, self.rows_per_file)

    def forget_files(self) -> None:
        """Opens them by their names again: others may have taken their places."""
        self._files.forget(f"{self._directory}/")

    def locate(self, offset: int) -> tuple[str, int]:
        """The file that has the row of ``offset`` once it is on the disk, and its byte there."""
        return self._path(offset), offset % self.rows_per_file * ROW_SIZE

    def _path(self, offset: int) -> str:
        first = offset - offset % self.rows_per_file
        return f"{self._directory}/{segment_name(first * ROW_SIZE)}"

    def read_disk(self, first: int, end: int) -> bytes:
        """Rows of one file as they lie there. Raises :class:`DamagedError` if they do not."""
        path, byte = self.locate(first)
        size = (end - first) * ROW_SIZE
        try:
            rows = self._files.get(path).pread(size, byte)
        except FileNotFoundError:
            raise DamagedError(path, 0, "the file is missing") from None
        except OSError as error:
            # Not as an OSError: on the event loop it would be taken for an error of a socket.
            raise DamagedError(path, byte, f"cannot be read: {error}") from error
        if len(rows) != size:
            raise DamagedError(path, byte + len(rows), "the file ends too early")
        return rows

    def seal(self, begin: int) -> Seal | None:
        """The seal of a block. Raises :class:`DamagedError` if it is not whole."""
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
        """Writes rows behind a tail, and seals the blocks that they complete; the tail behind them.

        Off the event loop. Without ``sync`` all is durable after a
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
        """Writes rows to their files, then seals of blocks that follow each other, by first offset.

        See :meth:`write_sealed`.
        """
        pieces: list[tuple[str, int, Bytes]] = []
        view = memoryview(rows)
        while view:
            in_file = first_offset % self.rows_per_file
            size = (self.rows_per_file - in_file) * ROW_SIZE
            pieces.append((self._path(first_offset), in_file * ROW_SIZE, view[:size]))
            first_offset += self.rows_per_file - in_file
            view = view[size:]
        packed: dict[str, tuple[int, bytearray]] = {}
        for begin, seal in seals:
            path = self._path(begin) + SEAL_SUFFIX
            _, data = packed.setdefault(path, (seal_byte(begin, self.rows_per_file), bytearray()))
            data += seal.pack()
        pieces += [(path, *piece) for path, piece in packed.items()]
        self._write_pieces(pieces, sync=sync)

    def _write_pieces(self, pieces: Sequence[tuple[str, int, Bytes]], *, sync: bool) -> None:
        files, fs = self._files, self._files.fs
        named = all(files.has_durable_name(path) and fs.exists(path) for path, _, _ in pieces)
        for path, byte, data in pieces:
            file = self._open_to_write(path, sync=sync)
            try:
                # What else an unreadable block had is made again from the log.
                overwrite_blocks(file, data, byte, may_cut=True)
                if sync:
                    file.datasync()
            finally:
                file.close()
        if sync and not named:
            fs.sync_directory(self._directory)
            for path, _, _ in pieces:
                files.note_durable_name(path)

    def _open_to_write(self, path: str, *, sync: bool) -> File:
        """The file, made with its directory if there is none."""
        fs = self._files.fs
        try:
            return fs.open(path)
        except FileNotFoundError:
            fs.make_directories(self._directory, sync=sync)
            return fs.open(path, create=True)
