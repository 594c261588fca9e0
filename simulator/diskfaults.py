"""What fails a call of a simulated disk, and which one: the n-th that matches."""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import dataclass

READS = frozenset({"pread", "list_directory", "size", "exists", "free_bytes", "total_bytes"})


class PowerLossError(BaseException):
    """Raised out of the call at which the power goes.

    Not an ``Exception``: like a killed process, it is nothing that code may handle.
    """


@dataclass(slots=True)
class Fault:
    """The ``countdown``-th call from now that matches fails, and all that follow if ``lasting``.

    ``operations`` are method names, none for all that change something; ``path`` is a part of the
    path. ``error`` is an errno, or ``None`` for a power loss (the caller then calls
    :meth:`SimulatedFileSystem.power_loss` or :meth:`~SimulatedFileSystem.crash`).
    """

    countdown: int
    error: int | None = errno.EIO
    operations: Collection[str] = ()
    path: str = ""
    lasting: bool = False
    hit: bool = False

    def matches(self, operation: str, path: str) -> bool:
        if self.operations:
            if operation not in self.operations:
                return False
        elif operation in READS:
            return False
        return self.path in path
