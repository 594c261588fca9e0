"""The file of a server's stderr: rotated when it is full, reopened when it was moved away.

``dledger up`` and ``dledger start`` append the stderr of a server to ``log/node.log``. Users of
``dledger node`` and ``dledger namesrv`` may do the same with any file. A terminal, a pipe and
systemd's journal are not rotated.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from itertools import count, islice, pairwise

_STDOUT, _STDERR = 1, 2


class StderrFile:
    """A rotation renames ``node.log`` to ``node.log.1``, that to ``node.log.2`` and so on."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def find(cls) -> StderrFile | None:
        """The file, or None if stderr is not appended to a file."""
        try:
            appends = fcntl.fcntl(_STDERR, fcntl.F_GETFL) & os.O_APPEND
            if not (appends and stat.S_ISREG(os.fstat(_STDERR).st_mode)):
                return None
            found = cls(os.readlink(f"/proc/self/fd/{_STDERR}"))
        except OSError:
            return None
        return found if found._is_current() else None

    @property
    def size(self) -> int:
        """The size in bytes. Raises ``OSError`` if stderr is closed."""
        return os.fstat(_STDERR).st_size

    def rotate(self, files: int) -> None:
        """Begins a new file; ``files`` are kept, with the new one. Does nothing if the file was
        moved away: whoever moved it should also ask for the reopening.

        Raises ``OSError`` if a file cannot be renamed or created.
        """
        if not self._is_current():
            return
        older = [self._path, *(f"{self._path}.{number}" for number in islice(count(1), files - 1))]
        for newer, old in reversed(list(pairwise(older))):
            with suppress(FileNotFoundError):
                os.replace(newer, old)
        if files == 1:
            os.unlink(self._path)
        self.reopen()

    def reopen(self) -> None:
        """Continues in the file that has the name now, or in a new one.

        Raises ``OSError`` if it cannot be opened; stderr stays unchanged then.
        """
        found = os.fstat(_STDERR)
        both = os.path.samestat(found, os.fstat(_STDOUT))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fresh = os.open(self._path, flags, stat.S_IMODE(found.st_mode))
        try:
            for number in (_STDOUT, _STDERR) if both else (_STDERR,):
                os.dup2(fresh, number)
        finally:
            os.close(fresh)

    def _is_current(self) -> bool:
        """Whether the file with the name is the present stderr."""
        try:
            return os.path.samestat(os.fstat(_STDERR), os.stat(self._path))
        except OSError:
            return False


def stdout_is_the_log() -> bool:
    """Whether stdout and stderr are the same file on a disk."""
    try:
        found = os.fstat(_STDOUT)
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.fstat(_STDERR))
    except OSError:
        return False
