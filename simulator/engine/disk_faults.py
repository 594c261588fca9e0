"""The calls of a simulated disk, and faults of single calls: the n-th that matches fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass

READS = frozenset({"pread", "list_directory", "size", "exists", "free_bytes", "total_bytes"})


class PowerLossError(BaseException):
    """Raised out of the call at which the power goes.

    Not an ``Exception``: like the kill of a process, it is nothing that code may handle.
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


class FaultyCalls:
    """The checks before each call of a disk.

    ``on_call`` gets operation and path of each call before it happens. ``calls`` counts the calls
    that change something.
    """

    def __init__(self, on_call: Callable[[str, str], None] | None) -> None:
        self.on_call = on_call
        self.calls = 0
        self._dark = False
        self._faults: list[Fault] = []

    def begin(self, operation: str, path: str) -> None:
        """Counts a call, and fails it if a fault is armed for it."""
        if self._dark:
            raise PowerLossError(f"{operation} {path}")
        if self.on_call is not None:
            self.on_call(operation, path)
        if operation not in READS:
            self.calls += 1
        for fault in self._faults:
            if (fault.hit and not fault.lasting) or not fault.matches(operation, path):
                continue
            fault.countdown -= 1
            if fault.countdown > 0:
                continue
            fault.hit = True
            if fault.error is None:
                self._dark = True
                raise PowerLossError(f"{operation} {path}")
            raise OSError(fault.error, os.strerror(fault.error), path)

    def inject(self, fault: Fault) -> Fault:
        """Arms a fault; a crash disarms all. Returns it, to ask whether it was hit."""
        self._faults.append(fault)
        return fault

    def lose_power_at(self, countdown: int) -> Fault:
        """Raises :class:`PowerLossError` from the ``countdown``-th call that changes something.

        From then on every call raises it, until :meth:`SimulatedFileSystem.power_loss` or
        :meth:`~SimulatedFileSystem.crash`.
        """
        return self.inject(Fault(countdown, None))

    def disarm(self) -> None:
        """Removes the faults that have not happened yet."""
        self._faults.clear()

    def power_on(self) -> None:
        """The machine has power again. No fault is armed."""
        self._dark = False
        self._faults.clear()
