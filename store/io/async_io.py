"""Writes that need no waiting thread.

A thread that waits for a disk must be woken for each write, and then wait for the interpreter. On a
small machine that costs more than the write. Here one system call hands the bytes to the kernel,
and a descriptor becomes readable when they are written. The kernel has two interfaces for that:
:mod:`store.io.io_uring`, and :mod:`store.io.kernel_aio` where that is forbidden.

A call may take as long as the disk does not answer or the file system is frozen. So no write is
begun for a while after a call or a write that took long, and after several refusals in a row. That
while doubles until a write goes well.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from typing import Protocol

from store.io.io_uring import IoUring
from store.io.kernel_aio import KernelAio
from store.io.kernel_calls import DSYNC, IN_FLIGHT_MAX, NOWAIT

SLOW_CALL_SECONDS = 0.01
SLOW_WRITE_SECONDS = 0.1
REFUSALS_MAX = 8
"""After so many in a row nothing is begun for a while."""
BACKOFF_SECONDS = (1.0, 60.0)
"""The first such while, and the longest, in seconds."""


class KernelWrites(Protocol):
    """Durable writes in progress in the kernel (``RWF_DSYNC``), numbered by slots: 0 to before
    :data:`IN_FLIGHT_MAX`.
    """

    def fileno(self) -> int:
        """Readable when writes have ended that :meth:`ended` has not told of."""

    def hold(self, fd: int) -> bool:
        """Keeps the file open until the last write has ended, also if the process is killed.
        Returns whether that is certain."""

    def begin(self, slot: int, fd: int, address: int, size: int, position: int) -> bool:
        """Begins a write in a free slot. Returns false if nothing was begun."""

    def ended(self, *, wait: bool) -> list[tuple[int, int]]:
        """Slots of writes that have ended, and how many bytes were written, or minus an errno.

        ``wait``: for at least one, as a rule. Raises ``OSError``.
        """

    def close(self) -> None:
        """To be called when no write is in progress."""


class WriteSubmitter(Protocol):
    """What takes a write; see :class:`AsyncWrites`."""

    def submit(
        self, fd: int, address: int, size: int, position: int, then: Callable[[int], None]
    ) -> bool: ...

    def hold(self, fd: int) -> None: ...


class AsyncWrites:
    """Up to :data:`IN_FLIGHT_MAX` durable writes in progress. Used by one thread.

    Whoever has made it watches :meth:`fileno` and calls :meth:`completed` when that is readable.
    """

    __slots__ = (
        "_backoff_seconds",
        "_backoff_until",
        "_clock",
        "_free",
        "_kernel",
        "_refusals",
        "_then",
    )

    def __init__(self, kernel: KernelWrites, clock: Callable[[], float]) -> None:
        """``clock`` tells seconds that never run backward."""
        self._kernel: KernelWrites | None = kernel
        self._free = list(range(IN_FLIGHT_MAX))
        self._then: dict[int, tuple[Callable[[int], None], float]] = {}
        self._clock = clock
        self._refusals = 0
        self._backoff_seconds = 0.0
        self._backoff_until = -math.inf

    @staticmethod
    def open(clock: Callable[[], float]) -> AsyncWrites | None:
        """``None`` if the system has no such writes, or gives none to this process."""
        if not (DSYNC and NOWAIT) or struct.calcsize("P") != 8:
            return None
        kernel = IoUring.open() or KernelAio.open()
        return None if kernel is None else AsyncWrites(kernel, clock)

    def fileno(self) -> int:
        """Readable when writes have ended that :meth:`completed` has not told of."""
        return -1 if self._kernel is None else self._kernel.fileno()

    @property
    def in_flight(self) -> int:
        """How many writes are under way."""
        return len(self._then)

    def hold(self, fd: int) -> None:
        """Keeps a file open until all writes have ended, also if the process is killed. Where the
        kernel cannot do that, no write is begun. Called before the first write."""
        if self._kernel is not None and not self._kernel.hold(fd):
            self._free.clear()

    def submit(
        self, fd: int, address: int, size: int, position: int, then: Callable[[int], None]
    ) -> bool:
        """Begins a write that is durable when it ends (``RWF_DSYNC``).

        The bytes at ``address`` must stay as they are until ``then`` is called with how many were
        written, or with minus an errno. ``EAGAIN`` is one of them: it could not be done at once.
        Returns false if nothing was begun.
        """
        now = self._clock()
        if not self._free or now < self._backoff_until or self._kernel is None:
            return False
        slot = self._free.pop()
        if not self._kernel.begin(slot, fd, address, size, position):
            self._free.append(slot)
            self._back_off()
            return False
        self._then[slot] = then, now
        if self._clock() - now > SLOW_CALL_SECONDS:
            self._back_off()
        return True

    def completed(self) -> None:
        """Tells of the writes that have ended."""
        if self._kernel is None:
            return
        try:  # noqa: SIM105 - its context manager costs three calls for each write
            os.read(self._kernel.fileno(), 8)
        except BlockingIOError:
            pass
        self._tell(self._kernel.ended(wait=False))

    def close(self) -> None:
        """Waits for the writes under way, and tells of them."""
        kernel = self._kernel
        if kernel is None:
            return
        try:
            while self._then:
                self._tell(kernel.ended(wait=True))
        finally:
            self._kernel = None
            kernel.close()

    def _tell(self, results: list[tuple[int, int]]) -> None:
        now = self._clock()
        ended: list[tuple[Callable[[int], None], int]] = []
        for slot, result in results:
            self._free.append(slot)
            then, began = self._then.pop(slot)
            self._judge(result, began, now)
            ended.append((then, result))
        for then, result in ended:
            then(result)

    def _judge(self, result: int, began: float, now: float) -> None:
        """Whether writes of this kind are worth beginning, by how one of them ended."""
        if result < 0:
            self._refusals += 1
            if self._refusals >= REFUSALS_MAX:
                self._back_off()
        elif now - began > SLOW_WRITE_SECONDS:
            self._back_off()
        else:
            self._refusals = 0
            if now >= self._backoff_until:
                self._backoff_seconds = 0.0

    def _back_off(self) -> None:
        first, longest = BACKOFF_SECONDS
        self._refusals = 0
        self._backoff_seconds = min(max(first, 2 * self._backoff_seconds), longest)
        self._backoff_until = self._clock() + self._backoff_seconds
