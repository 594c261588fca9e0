"""Writes that need no waiting thread: Linux's asynchronous I/O (io_submit).

A thread that waits for a disk must be woken for each write, and then wait for the interpreter. On a
small machine that costs more than the write. Here one system call hands the bytes to the device
(``io_submit``). A descriptor becomes readable when they are written (``eventfd``), and another call
says which writes have ended (``io_getevents``). The C library does not wrap these calls, so they
are called by number.

A write that cannot begin at once is refused (``RWF_NOWAIT``). The flag covers the bytes, but not
the rest of a file system's work: ext4 notes the time of a write in its journal, and the call may
sleep for that. It took milliseconds while the journal was written. It may take as long as the disk
does not answer or the file system is frozen. So no write is begun for a while after a call or a
write that took long, and after several refusals in a row. That while doubles until a write goes
well.

The layouts are those of ``linux/aio_abi.h``::

    struct iocb (64 bytes)                    struct io_event (32 bytes)
       0  u64   data: told again in the event    0  u64  data
       8  u32   key                              8  u64  address of the iocb
      12  u32   flags of the write (RWF_*)      16  i64  bytes written, or minus an errno
      16  u16   operation                       24  i64  a second result, unused here
      18  i16   priority
      20  u32   file descriptor
      24  u64   address of the bytes
      32  u64   their number
      40  i64   position in the file
      48  u64   reserved
      56  u32   flags: 1 where an eventfd is to be told
      60  u32   the eventfd
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import platform
import struct
from collections.abc import Callable
from typing import Protocol

IN_FLIGHT_MAX = 8
SLOW_CALL_SECONDS = 0.01
SLOW_WRITE_SECONDS = 0.1
REFUSALS_MAX = 8
"""After so many in a row nothing is begun for a while."""
BACKOFF_SECONDS = (1.0, 60.0)
"""The first such while, and the longest, in seconds."""

_IOCB = struct.Struct("=QIIHhIQQqQII")
_EVENT = struct.Struct("=QQqq")
_IOCB_CMD_PWRITE = 1
_IOCB_FLAG_RESFD = 1
# io_setup, io_submit, io_getevents, io_destroy, by what uname calls the machine
_NUMBERS = {"x86_64": (206, 209, 208, 207), "aarch64": (0, 2, 4, 1)}
_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class WriteSubmitter(Protocol):
    """What takes a write; see :class:`AsyncWrites`."""

    def submit(
        self, fd: int, address: int, size: int, position: int, then: Callable[[int], None]
    ) -> bool: ...


class AsyncWrites:
    """Up to :data:`IN_FLIGHT_MAX` durable writes in progress. Used by one thread.

    Whoever has made it watches :meth:`fileno` and calls :meth:`completed` when that is readable.
    """

    __slots__ = (
        "_backoff_seconds",
        "_backoff_until",
        "_blocks",
        "_clock",
        "_context",
        "_event_fd",
        "_events",
        "_free",
        "_numbers",
        "_pointers",
        "_refusals",
        "_then",
    )

    def __init__(
        self,
        context: int,
        numbers: tuple[int, int, int, int],
        event_fd: int,
        clock: Callable[[], float],
    ) -> None:
        self._context = ctypes.c_long(context)
        self._numbers = [ctypes.c_long(number) for number in numbers]
        self._event_fd = event_fd
        self._blocks = [ctypes.create_string_buffer(_IOCB.size) for _ in range(IN_FLIGHT_MAX)]
        self._pointers = [
            ctypes.byref(ctypes.c_void_p(ctypes.addressof(block))) for block in self._blocks
        ]
        self._events = ctypes.create_string_buffer(_EVENT.size * IN_FLIGHT_MAX)
        self._free = list(range(IN_FLIGHT_MAX))
        self._then: dict[int, tuple[Callable[[int], None], float]] = {}
        self._clock = clock
        self._refusals = 0
        self._backoff_seconds = 0.0
        self._backoff_until = -math.inf

    @staticmethod
    def open(clock: Callable[[], float]) -> AsyncWrites | None:
        """``None`` if the system has no such writes, or gives none to this process.

        ``clock`` tells seconds that never run backward.
        """
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None or not (_DSYNC and _NOWAIT) or struct.calcsize("P") != 8:
            return None
        context = ctypes.c_ulong(0)
        in_flight = ctypes.c_long(IN_FLIGHT_MAX)
        if _call(ctypes.c_long(numbers[0]), in_flight, ctypes.byref(context)) != 0:
            return None
        try:
            event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            _call(ctypes.c_long(numbers[3]), ctypes.c_long(context.value))
            return None
        return AsyncWrites(context.value, numbers, event_fd, clock)

    def fileno(self) -> int:
        """Readable when writes have ended that :meth:`completed` has not told of."""
        return self._event_fd

    @property
    def in_flight(self) -> int:
        """How many writes are under way."""
        return len(self._then)

    def submit(
        self, fd: int, address: int, size: int, position: int, then: Callable[[int], None]
    ) -> bool:
        """Begins a write that is durable when it ends (``RWF_DSYNC``).

        The bytes at ``address`` must stay as they are until ``then`` is called with how many were
        written, or with minus an errno. ``EAGAIN`` is one of them: it could not be done at once.
        Returns false if nothing was begun.
        """
        now = self._clock()
        if not self._free or now < self._backoff_until:
            return False
        slot = self._free.pop()
        _IOCB.pack_into(
            self._blocks[slot], 0, slot, 0, _DSYNC | _NOWAIT, _IOCB_CMD_PWRITE, 0,
            fd, address, size, position, 0, _IOCB_FLAG_RESFD, self._event_fd,
        )  # fmt: skip
        if _call(self._numbers[1], self._context, _ONE, self._pointers[slot]) != 1:
            self._free.append(slot)
            self._back_off()
            return False
        self._then[slot] = then, now
        if self._clock() - now > SLOW_CALL_SECONDS:
            self._back_off()
        return True

    def completed(self) -> None:
        """Tells of the writes that have ended."""
        try:  # noqa: SIM105 - its context manager costs three calls for each write
            os.read(self._event_fd, 8)
        except BlockingIOError:
            pass
        self._tell(_NONE)

    def close(self) -> None:
        """Waits for the writes under way, and tells of them."""
        if self._event_fd < 0:
            return
        try:
            while self._then:
                self._tell(_ONE)
        finally:
            _call(self._numbers[3], self._context)
            os.close(self._event_fd)
            self._event_fd = -1

    def _tell(self, at_least: ctypes.c_long) -> None:
        count = _call(self._numbers[2], self._context, at_least, _ALL, self._events, None)
        if count < 0:
            error = ctypes.get_errno()
            if error == errno.EINTR:
                return
            raise OSError(error, os.strerror(error), "io_getevents")
        now = self._clock()
        ended: list[tuple[Callable[[int], None], int]] = []
        for place in range(count):
            slot, _block, result, _ = _EVENT.unpack_from(self._events, place * _EVENT.size)
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


_NONE, _ONE, _ALL = ctypes.c_long(0), ctypes.c_long(1), ctypes.c_long(IN_FLIGHT_MAX)
_call = ctypes.CDLL(None, use_errno=True).syscall
_call.restype = ctypes.c_long
