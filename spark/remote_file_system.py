"""Reads replicas that are not on a local path, through Arrow or fsspec.

``s3://``, ``gs://``, ``hdfs://`` and ``file://`` go through Arrow's own file systems, any other
scheme through fsspec. Files are read in ranges. Nothing is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import NoReturn

import fsspec
import pyarrow as pa
import pyarrow.fs as arrowfs

from spark.errors import ReplicaError
from store.io.filesystem import Bytes, FileSystem
from store.io.os_filesystem import OsFileSystem


def open_file_system(path: str) -> tuple[FileSystem, str]:
    """The file system of a path or URL, and the path within it.

    Raises :class:`~spark.errors.ReplicaError` for a scheme that neither Arrow nor fsspec knows.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        # Executors have other working directories.
        return OsFileSystem(), os.path.abspath(path)
    if scheme == "file" and rest.startswith("/"):
        return OsFileSystem(), trim(rest)
    try:
        found, inner = arrowfs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ImportError) as first:
        try:
            opened, inner = fsspec.core.url_to_fs(path)
        except (ValueError, ImportError, OSError) as error:
            # If Arrow knows the scheme, its own reason is the helpful one.
            reason = str(first if isinstance(first, OSError) else error).partition("\n")[0]
            raise ReplicaError(f"{path}: this cannot be opened: {reason}") from error
        found = arrowfs.PyFileSystem(arrowfs.FSSpecHandler(opened))
    return RemoteFileSystem(found), trim(inner)


def open_one_file_system(paths: Sequence[str]) -> tuple[FileSystem, list[str]]:
    """The file system of all paths and URLs, and the paths within it.

    Raises :class:`~spark.errors.ReplicaError` if they are on different ones: tasks read from one.
    Equal paths of two stores are different directories.
    """
    opened = [open_file_system(path) for path in paths]
    first = opened[0][0]
    for path, (other, _) in zip(paths, opened, strict=True):
        if not is_same(first, other):
            raise ReplicaError(
                f"{paths[0]} and {path} lie on different file systems or stores: copy the replicas "
                "to one"
            )
    return first, [inner for _, inner in opened]


def is_same(one: FileSystem, other: FileSystem) -> bool:
    if isinstance(one, RemoteFileSystem) and isinstance(other, RemoteFileSystem):
        return one.is_same(other)
    return type(one) is type(other)


def trim(path: str) -> str:
    return path.rstrip("/") or "/"


def path_names(path: str) -> list[str]:
    """The names in a path. There may be any number of slashes between them."""
    return [name for name in path.split("/") if name]


READ_AHEAD = 4 << 20


class RemoteFile:
    """One open file, for reading only.

    Each read of an object store is a request, but the check reads pieces that fit a processor's
    cache. So consecutive reads into a buffer are served from a larger buffer.
    """

    def __init__(self, path: str, file: pa.NativeFile) -> None:
        self._path = path
        self._file = file
        self._size: int = file.size()
        self._held = memoryview(b"")
        self._held_position = 0

    @property
    def path(self) -> str:
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        if position >= self.size():
            return b""
        data: bytes = self._file.read_at(size, position)
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        at = position - self._held_position
        wanted = min(len(buffer), max(self._size - position, 0))
        if at < 0 or at + wanted > len(self._held):
            self._held = memoryview(self.pread(max(len(buffer), READ_AHEAD), position))
            self._held_position, at = position, 0
        data = self._held[at : at + wanted]
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, data: Bytes, position: int) -> None:  # noqa: ARG002 - of the interface
        raise read_only_error(self._path)

    append_direct = pwrite

    def allocate(self, size: int, position: int) -> bool:  # noqa: ARG002 - of the interface
        raise read_only_error(self._path)

    def begin_append(
        self,
        data: Bytes,  # noqa: ARG002 - of the interface
        position: int,  # noqa: ARG002 - of the interface
        then: Callable[[OSError | None], None],  # noqa: ARG002 - of the interface
    ) -> bool:
        raise read_only_error(self._path)

    def datasync(self) -> None:
        raise read_only_error(self._path)

    def drop_cached(self, size: int, position: int) -> None:
        """Does nothing: the page cache of this machine does not have the file."""

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:  # noqa: ARG002 - of the interface
        raise read_only_error(self._path)

    def close(self) -> None:
        self._file.close()


class RemoteFileSystem:
    """Arrow's file systems behind :class:`~store.io.filesystem.FileSystem`; read only."""

    def __init__(self, inner: arrowfs.FileSystem) -> None:
        self._inner = inner

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RemoteFile:
        if create or writable:
            raise read_only_error(path)
        return RemoteFile(path, self._inner.open_input_file(path))

    def exists(self, path: str) -> bool:
        found: bool = self._inner.get_file_info(path).type != arrowfs.FileType.NotFound
        return found

    def list_directory(self, path: str) -> list[str]:
        # Google's store has no directories. Arrow lists only those that were made as directories.
        is_deep = self._inner.type_name == "gcs"
        infos = self._inner.get_file_info(arrowfs.FileSelector(path, recursive=is_deep))
        # Paths in an answer may have more or fewer slashes than the request. One may be the
        # directory itself. Arrow gives "name/" an empty name.
        directory = path_names(path)
        found = [path_names(info.path) for info in infos]
        if is_deep:
            depth = len(directory)
            return sorted({one[depth] for one in found if len(one) > depth})
        return sorted({one[-1] for one in found if one != directory})

    def list_tree(self, path: str) -> dict[str, tuple[str, ...]]:
        """Names by directory, for ``path`` and all below. A request lists a thousand names."""
        infos = self._inner.get_file_info(arrowfs.FileSelector(path, recursive=True))
        depth = len(path_names(path))
        found: dict[str, set[str]] = {path: set()}
        for info in infos:
            above = path
            for name in path_names(info.path)[depth:]:
                found.setdefault(above, set()).add(name)
                above = f"{above}/{name}"
            if info.type == arrowfs.FileType.Directory:
                found.setdefault(above, set())
        return {directory: tuple(sorted(names)) for directory, names in found.items()}

    def identify(self, path: str) -> str:
        return "/".join(path_names(path))

    def is_same(self, other: RemoteFileSystem) -> bool:
        """Whether ``other`` is the same store, reached in the same way."""
        return bool(self._inner.equals(other._inner))

    def make_directories(self, path: str, *, sync: bool = True) -> None:  # noqa: ARG002 - interface
        raise read_only_error(path)

    def write(self, path: str, data: Bytes, position: int) -> None:  # noqa: ARG002 - interface
        raise read_only_error(path)

    def _refuse_change(self, _source: str, target: str) -> NoReturn:
        raise read_only_error(target)

    rename = link = _refuse_change

    def _refuse(self, path: str) -> NoReturn:
        raise read_only_error(path)

    sync_all = remove = remove_tree = sync_directory = free_bytes = total_bytes = lock = _refuse


def read_only_error(path: str) -> OSError:
    return OSError(errno.EROFS, "read through Arrow, where nothing can be written", path)
