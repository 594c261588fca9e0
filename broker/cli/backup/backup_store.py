"""Backups in an object store, or any other store of fsspec."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.cli.backup.backup_index import (
    BACKUPS,
    OBJECTS,
    SUFFIX,
    BackupFile,
    BackupIndex,
    BackupReplica,
    file_digest,
)
from broker.cli.terminal.progress import Progress
from broker.command_error import CommandError, UsageError
from store.errors import DamagedError

Count = Callable[[int], None]

PART_SUFFIX = ".part"
"""The suffix of a file that is being fetched."""


class BackupStore:
    """The backups below one URL. Methods raise :class:`CommandError` if the store fails."""

    def __init__(self, url: str) -> None:
        """Raises :class:`UsageError` for a URL that fsspec cannot open."""
        self._fs, path = _opened(url)
        self.url = url.partition("?")[0].rstrip("/")
        self._root = path.rstrip("/")
        self._objects: dict[str, int] | None = None

    def names(self) -> list[str]:
        """The names of all backups, oldest first. Raises :class:`CommandError` where nothing was
        ever sent: a wrong URL must not look like a store that is empty."""
        found = self._listed(BACKUPS)
        if not found and not self._listed(OBJECTS):
            raise CommandError(f"{self.url}: nothing was ever backed up there")
        names = [path.rpartition("/")[2] for path in found]
        return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))

    def read(self, name: str) -> BackupIndex:
        """Raises :class:`~store.errors.DamagedError` for an object that is not the index of a
        backup."""
        path = f"{BACKUPS}/{name}{SUFFIX}"
        try:
            data = self._fs.cat_file(self._path(path))
        except FileNotFoundError as error:
            known = ", ".join(self.names()[-3:]) or "none"
            raise CommandError(f"{self.url}: there is no backup {name}; newest: {known}") from error
        except Exception as error:
            raise self._failed(path, error) from error
        return BackupIndex.decode(name, data, f"{self.url}/{path}")

    def write(self, index: BackupIndex) -> None:
        """Writes the index, which completes the backup."""
        self._put_bytes(f"{BACKUPS}/{index.name}{SUFFIX}", index.encode())

    def put(self, source: Path, file: BackupFile, progress: Count) -> bool:
        """Stores the bytes of a file, unless the store has them. Returns whether it stored them."""
        if self._objects is None:
            self._objects = self._sizes(OBJECTS)
        name = file.object_name
        if self._objects.get(name) == file.size:
            progress(file.size)
            return False
        path = self._path(name)
        counted = _counted(progress)
        try:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(source), path, callback=counted)
        except Exception as error:
            raise self._failed(name, error) from error
        progress(file.size - counted.value)
        self._objects[name] = file.size
        return True

    def fetch(self, replica: BackupReplica, directory: Path, progress: Count) -> None:
        """Copies a snapshot into ``directory``. Files of an earlier call stay.

        Raises :class:`CommandError` for bytes with a wrong checksum.
        """
        for file in replica.files:
            target = directory / file.name
            if not (_has_size(target, file.size) and file_digest(target) == file.sha256):
                self._fetch(file, target)
            progress(file.size)

    def _fetch(self, file: BackupFile, target: Path) -> None:
        part = target.with_name(target.name + PART_SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fs.get_file(self._path(file.object_name), str(part))
        except Exception as error:
            raise self._failed(file.object_name, error) from error
        if not _has_size(part, file.size) or file_digest(part) != file.sha256:
            part.unlink()
            raise CommandError(
                f"{self.url}/{file.object_name}: damaged: not the bytes of {file.name}"
            )
        part.replace(target)

    def remove_backup(self, name: str) -> None:
        self._remove(f"{BACKUPS}/{name}{SUFFIX}")

    def remove_unused(self, used: frozenset[str]) -> int:
        """Removes the objects that are not in ``used``; returns their bytes."""
        unused = {name: size for name, size in self._sizes(OBJECTS).items() if name not in used}
        for name in unused:
            self._remove(name)
        return sum(unused.values())

    def _remove(self, name: str) -> None:
        try:
            self._fs.rm_file(self._path(name))
        except Exception as error:
            raise self._failed(name, error) from error

    def _put_bytes(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)
        except Exception as error:
            raise self._failed(name, error) from error

    def _listed(self, directory: str) -> list[str]:
        """What is in a directory; nothing where there is none."""
        try:
            self._fs.invalidate_cache()
            found: list[str] = self._fs.ls(self._path(directory), detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._failed(directory, error) from error
        return found

    def _sizes(self, directory: str) -> dict[str, int]:
        """The bytes of all files below a directory, by their names below the URL. A directory that
        cannot be listed may count as empty: fsspec passes over the error."""
        path = self._path(directory)
        try:
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.find(path, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise self._failed(directory, error) from error
        start = len(path.strip("/"))
        return {
            f"{directory}{each.strip('/')[start:]}": info["size"] for each, info in found.items()
        }

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _failed(self, name: str, error: Exception) -> CommandError:
        """The error for a failed store. Stores raise errors of the operating system, of HTTP, and
        their own."""
        why = str(error).partition("\n")[0] or type(error).__name__
        return CommandError(f"{self.url}/{name}: {why}")


def _opened(url: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and the path in it. If fsspec lacks the package for a scheme
    (``s3``, ``gs``), Arrow's own file systems are used."""
    try:
        import fsspec  # noqa: PLC0415 - an extra, and slow
        from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UsageError("backups need fsspec: `pip install dledger[backup]`") from error
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ValueError as error:
        raise UsageError(f"{url}: {error}") from error
    except ImportError as missing:
        try:
            from pyarrow.fs import FileSystem  # noqa: PLC0415 - an extra, and slow

            inner, path = FileSystem.from_uri(url)
        except (ImportError, ValueError, OSError) as error:
            raise UsageError(f"{url}: {missing}; or by Arrow: {error}") from error
        fs = ArrowFSWrapper(inner)
    return fs, path


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return False


def _counted(progress: Count) -> Any:
    from fsspec.callbacks import Callback  # noqa: PLC0415 - an extra

    class Counted(Callback):  # type: ignore[misc] # fsspec ships no types
        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            progress(inc)

    return Counted()


def snapshot_files(directory: Path) -> tuple[BackupFile, ...]:
    """All files of a snapshot, with their checksums. Raises :class:`CommandError` if a file or a
    directory cannot be read."""
    found = []
    try:
        for home, _directories, names in os.walk(directory, onerror=_raise):
            for name in names:
                path = Path(home, name)
                relative = str(path.relative_to(directory))
                found.append(BackupFile(relative, path.stat().st_size, file_digest(path)))
    except OSError as error:
        raise CommandError(f"{error.filename or directory}: {error.strerror}") from error
    return tuple(sorted(found, key=lambda file: file.name))


def _raise(error: OSError) -> None:
    raise error


FETCHED_SUFFIX = ".fetched"


@contextmanager
def fetched_backup(
    url: str, name: str | None, target: Path, groups: Sequence[str] | None
) -> Iterator[Path]:
    """A directory with the snapshots of a backup, the newest one by default.

    It is ``<target>.fetched``. It is removed after the block, but kept after an error, so that a
    repeated restore continues there. Raises :class:`CommandError` and :class:`UsageError`.
    """
    store = BackupStore(url)
    index = _read_backup(store, name)
    replicas = [each for each in index.replicas if groups is None or each.group in groups]
    if not replicas:
        known = ", ".join(each.group for each in index.replicas)
        raise UsageError(f"the backup {index.name} has no group {groups}; it has {known}")
    home = Path(f"{target}{FETCHED_SUFFIX}")
    fetched = home / index.name
    try:
        with Progress("bytes fetched", total=sum(each.size for each in replicas)) as progress:
            for replica in replicas:
                store.fetch(replica, fetched / replica.group / replica.node, progress.add)
    except OSError as error:
        raise CommandError(f"{fetched}: {error}") from error
    yield fetched
    shutil.rmtree(home)


def _read_backup(store: BackupStore, name: str | None) -> BackupIndex:
    if name is None:
        names = store.names()
        if not names:
            raise CommandError(f"{store.url} holds no backup; `dledger backup create` makes one")
        name = names[-1]
    try:
        return store.read(name)
    except DamagedError as error:
        raise CommandError(f"{error}; name another one with --backup") from error
