"""Reads files of replicas, and makes findings of the errors of the file system.

The check reads all but the small files through an :class:`AuditFiles`. A file that cannot be opened
reads as an empty one. A file with an unreadable block ends before that block. So the check goes on,
and reports what is missing. :attr:`AuditFiles.failures` has the reasons.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from store.io.filesystem import ReadableFile, ReadableFileSystem
from store.io.unreadable_blocks import read_until_unreadable
from store.verify.findings import Finding, FindingKind, FindingLog

DANGLING = "a link that leads nowhere"
READABLE = "a file or directory that can be read"
_OTHER_THINGS = frozenset(
    {
        errno.EINVAL,  # a pipe, a socket, a device
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
    }
)
"""Errors that mean that the name is something else than a file or directory."""

_KINDS = {
    "commitlog": FindingKind.SEGMENT,
    "index": FindingKind.ENTRY_INDEX,
    "consumequeue": FindingKind.CONSUME_QUEUE,
    "keyindex": FindingKind.KEY_INDEX,
}


class AuditFiles:
    """A file system for reading, on top of ``below``. See the module.

    ``listing`` has directories that were listed before: their names, ``None`` for a missing one.
    """

    def __init__(
        self, below: ReadableFileSystem, listing: Mapping[str, Sequence[str] | None] | None = None
    ) -> None:
        self.below = below
        self._listing = listing or {}
        self.failures: dict[str, tuple[int, str, bool]] = {}
        """By path: the first unreadable byte, the reason, and whether the bytes may be right."""
        self._names: dict[str, frozenset[str]] = {}

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> ReadableFile:  # noqa: ARG002 - nothing is written
        """Raises ``FileNotFoundError`` if there is no such name, and nothing else."""
        try:
            return _AuditFile(self, self.below.open(path, writable=False))
        except FileNotFoundError:
            if not self._is_listed(path):
                raise
            self.note(path, 0, None)
        except (OSError, ValueError) as error:
            self.note(self._highest_unreadable(path), 0, error)
        return _EmptyFile(path)

    def exists(self, path: str) -> bool:
        if path in self._listing:
            return self._listing[path] is not None
        try:
            if self.below.exists(path):
                return True
        except (OSError, ValueError) as error:
            self.note(path, 0, error)
            return False
        if self._is_listed(path):
            self.note(path, 0, self._open_error(path))
        return False

    def list_directory(self, path: str) -> list[str]:
        if path in self._listing:
            names = self._listing[path]
            if names is None:
                raise FileNotFoundError(path)
            return list(names)
        try:
            return self.below.list_directory(path)
        except FileNotFoundError:
            if not self._is_listed(path):
                raise
            self.note(path, 0, None)
        except (OSError, ValueError) as error:
            self.note(self._highest_unreadable(path), 0, error)
        return []

    def identify(self, path: str) -> str:
        return self.below.identify(path)

    def note(self, path: str, position: int, error: Exception | None) -> None:
        """Notes why a file cannot be read from ``position`` on; ``None`` for a dangling link."""
        known = self.failures.get(path)
        if known is None or position < known[0]:
            why = DANGLING if error is None else reason(error)
            self.failures[path] = (position, why, error is not None and may_be_right(error))

    def findings(self, names: Mapping[str, str]) -> list[Finding]:
        """A finding for each path that could not be read. ``names``: replicas by directory."""
        found: list[Finding] = []
        for path, (position, why, unread) in sorted(self.failures.items()):
            directory = next((one for one in names if path.startswith(f"{one}/")), None)
            if directory is None:
                continue
            part = path.removeprefix(f"{directory}/").partition("/")[0]
            kind = _KINDS.get(part, FindingKind.FORMAT)
            log = FindingLog(names[directory])
            log.add(kind, path, position, READABLE, f"cannot be read: {why}", unread=unread)
            found += log.findings
        return found

    def _highest_unreadable(self, path: str) -> str:
        """The highest directory that cannot be listed above ``path``, else ``path``."""
        parent = path.rpartition("/")[0]
        try:
            self.below.list_directory(parent)
        except (OSError, ValueError):
            return self._highest_unreadable(parent) if parent else path
        return path

    def _open_error(self, path: str) -> Exception | None:
        """Why a name cannot be opened; ``None`` for a dangling link."""
        try:
            self.below.open(path, writable=False).close()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return error
        return None

    def _is_listed(self, path: str) -> bool:
        directory, _slash, name = path.rpartition("/")
        if directory not in self._names:
            self._names[directory] = listed_names(self.below, directory)
        return name in self._names[directory]


class _AuditFile:
    """A file that ends before its first unreadable block."""

    def __init__(self, files: AuditFiles, file: ReadableFile) -> None:
        self._files = files
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def pread(self, size: int, position: int) -> bytes:
        """The bytes before the first unreadable block."""
        try:
            data, error = read_until_unreadable(self._file, size, position)
        except OverflowError:
            return b""  # behind the end of any file
        except OSError as failure:
            data, error = b"", failure
        if error is not None:
            self._files.note(self.path, position + len(data), error)
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        try:
            return self._file.pread_into(buffer, position)
        except (OverflowError, OSError):
            data = self.pread(len(buffer), position)
            buffer[: len(data)] = data
            return len(data)

    def size(self) -> int:
        try:
            return self._file.size()
        except OSError as error:
            self._files.note(self.path, 0, error)
            return 0

    def close(self) -> None:
        self._file.close()


class _EmptyFile:
    """A file that cannot be opened: it reads as empty."""

    def __init__(self, path: str) -> None:
        self.path = path

    def pread(self, size: int, position: int) -> bytes:  # noqa: ARG002 - of the interface
        return b""

    def pread_into(self, buffer: memoryview, position: int) -> int:  # noqa: ARG002 - of the interface
        return 0

    def size(self) -> int:
        return 0

    def close(self) -> None:
        """There is nothing to close."""


def listed_names(fs: ReadableFileSystem, directory: str) -> frozenset[str]:
    """The names in a directory, none if it cannot be listed."""
    try:
        return frozenset(fs.list_directory(directory))
    except (OSError, ValueError):
        return frozenset()


def may_be_right(error: Exception) -> bool:
    """Whether the file may be right, because the error says nothing about it."""
    return isinstance(error, OSError) and error.errno not in _OTHER_THINGS


def reason(error: Exception) -> str:
    """Why a call failed, without the path, which a finding has anyway."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
