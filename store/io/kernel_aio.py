"""Linux's asynchronous I/O (``io_submit``): up to :data:`IN_FLIGHT_MAX` writes in progress.

One system call hands the bytes to the device. A descriptor becomes readable when they are written
(``eventfd``), and another call says which writes have ended (``io_getevents``). The C library does
not wrap these calls, so they are called by number.

A write that cannot begin at once is refused (``RWF_NOWAIT``). The flag covers the bytes, but not
the rest of a file system's work: ext4 notes the time of a write in its journal, and the call may
sleep for that.

A process that is killed ends these writes before its connections are closed. That takes 30 ms, even
if there are none: the kernel waits until no processor looks at them any more.

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
import os
import platform
import struct

from store.io.kernel_calls import DSYNC, IN_FLIGHT_MAX, NOWAIT, open_event_fd, system_call

_IOCB = struct.Struct("=QIIHhIQQqQII")
_EVENT = struct.Struct("=QQqq")
_IOCB_CMD_PWRITE = 1
_IOCB_FLAG_RESFD = 1
NUMBERS = {"x86_64": (206, 209, 208, 207), "aarch64": (0, 2, 4, 1)}
"""``io_setup``, ``io_submit``, ``io_getevents``, ``io_destroy``, by what uname calls the machine"""


class KernelAio:
    """See :class:`~store.io.async_io.KernelWrites`."""

    __slots__ = ("_blocks", "_context", "_event_fd", "_events", "_numbers", "_pointers")

    def __init__(self, context: int, numbers: tuple[int, int, int, int], event_fd: int) -> None:
        self._context = ctypes.c_long(context)
        self._numbers = [ctypes.c_long(number) for number in numbers]
        self._event_fd = event_fd
        self._blocks = [ctypes.create_string_buffer(_IOCB.size) for _ in range(IN_FLIGHT_MAX)]
        self._pointers = [
            ctypes.byref(ctypes.c_void_p(ctypes.addressof(block))) for block in self._blocks
        ]
        self._events = ctypes.create_string_buffer(_EVENT.size * IN_FLIGHT_MAX)

    @staticmethod
    def open() -> KernelAio | None:
        """``None`` if the system has no such writes, or gives none to this process."""
        numbers = NUMBERS.get(platform.machine())
        if numbers is None:
            return None
        context = ctypes.c_ulong(0)
        in_flight = ctypes.c_long(IN_FLIGHT_MAX)
        if system_call(ctypes.c_long(numbers[0]), in_flight, ctypes.byref(context)) != 0:
            return None
        event_fd = open_event_fd()
        if event_fd is None:
            system_call(ctypes.c_long(numbers[3]), ctypes.c_long(context.value))
            return None
        return KernelAio(context.value, numbers, event_fd)

    def fileno(self) -> int:
        return self._event_fd

    def hold(self, _fd: int) -> bool:
        """A process ends after its writes, and so keeps open what it has open."""
        return True

    def begin(self, slot: int, fd: int, address: int, size: int, position: int) -> bool:
        _IOCB.pack_into(
            self._blocks[slot], 0, slot, 0, DSYNC | NOWAIT, _IOCB_CMD_PWRITE, 0,
            fd, address, size, position, 0, _IOCB_FLAG_RESFD, self._event_fd,
        )  # fmt: skip
        return bool(system_call(self._numbers[1], self._context, _ONE, self._pointers[slot]) == 1)

    def ended(self, *, wait: bool) -> list[tuple[int, int]]:
        count = system_call(
            self._numbers[2], self._context, _ONE if wait else _NONE, _ALL, self._events, None
        )
        if count < 0:
            error = ctypes.get_errno()
            if error == errno.EINTR:
                return []
            raise OSError(error, os.strerror(error), "io_getevents")
        events = (_EVENT.unpack_from(self._events, at * _EVENT.size) for at in range(count))
        return [(slot, result) for slot, _block, result, _ in events]

    def close(self) -> None:
        system_call(self._numbers[3], self._context)
        os.close(self._event_fd)
        self._event_fd = -1


_NONE, _ONE, _ALL = ctypes.c_long(0), ctypes.c_long(1), ctypes.c_long(IN_FLIGHT_MAX)
