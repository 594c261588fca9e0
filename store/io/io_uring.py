"""Linux's ``io_uring``: up to :data:`IN_FLIGHT_MAX` writes in progress.

The process and the kernel share two rings: of writes to begin, and of writes that have ended. One
system call begins a write. A descriptor becomes readable when it has ended (``eventfd``). What
cannot begin at once is done by a thread of the kernel, so the call never sleeps. Many containers
forbid these calls.

If a process is killed, its connections are closed at once, and writes in progress end later. The
next process must not open the data before that: an old write might cover a new one. So the ring
holds the lock of the data as well. The kernel gives it up with the ring, after the last write.

The layouts are those of ``linux/io_uring.h``::

    struct io_uring_sqe (64 bytes)            struct io_uring_cqe (16 bytes)
       0  u8    operation                        0  u64  told data
       1  u8    flags                            8  i32  bytes written, or minus an errno
       2  u16   priority                        12  u32  flags
       4  i32   file descriptor
       8  u64   position in the file          struct io_uring_params (120 bytes), answered
      16  u64   address of the bytes             0  u32  entries of the ring of begun writes
      24  u32   their number                     4  u32  entries of the ring of ended writes
      28  u32   flags of the write (RWF_*)      20  u32  features
      32  u64   data: told again at the end     40  10 u32  offsets in the ring of begun writes:
      40  24 bytes for other operations             head, tail, mask, entries, flags, dropped, array
                                                80  10 u32  offsets in the ring of ended writes:
                                                    head, tail, mask, entries, overflow, entries at
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct

from store.io.kernel_calls import DSYNC, IN_FLIGHT_MAX, open_event_fd, system_call

MACHINES = {"x86_64", "aarch64"}
"""Where the calls have these numbers. On both, 64-bit numbers lie in the order of bytes of the
fields below."""
_SETUP, _ENTER, _REGISTER = (ctypes.c_long(number) for number in (425, 426, 427))
_PARAMS_SIZE = 120
_FEATURES_AT, _BEGUN_AT, _ENDED_AT = 20, 40, 80
_FEATURES = 1 << 0 | 1 << 1 | 1 << 3
"""One mapping for both rings; no ended write is dropped; ``WRITE`` is known (Linux 5.6)."""
_ENTRIES_OFFSET = 0x10000000
_REGISTER_FILES, _UNREGISTER_FILES, _REGISTER_EVENTFD = (ctypes.c_long(each) for each in (2, 3, 4))
_WAIT = ctypes.c_long(1)
_WRITE = 23
_BEGUN = struct.Struct("=BBHiQQIIQ24x")
_ENDED = struct.Struct("=QiI")
_WORD = 4
_COUNT_MASK = 0xFFFFFFFF
_MAP = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class IoUring:
    """See :class:`~store.io.async_io.KernelWrites`."""

    __slots__ = (
        "_begun",
        "_begun_mask",
        "_begun_tail",
        "_ended_at",
        "_ended_head",
        "_ended_mask",
        "_ended_tail",
        "_event_fd",
        "_fd",
        "_number",
        "_rings",
        "_words",
    )

    def __init__(self, fd: int, params: bytes, event_fd: int) -> None:
        """Raises ``OSError`` if the rings cannot be mapped."""
        begun_count, ended_count = struct.unpack_from("=2I", params)
        begun = struct.unpack_from("=7I", params, _BEGUN_AT)
        ended = struct.unpack_from("=6I", params, _ENDED_AT)
        size = max(begun[6] + _WORD * begun_count, ended[5] + _ENDED.size * ended_count)
        self._rings = mmap.mmap(fd, size, _MAP)
        self._begun = mmap.mmap(fd, _BEGUN.size * begun_count, _MAP, offset=_ENTRIES_OFFSET)
        self._words = memoryview(self._rings).cast("I")
        words = self._words
        self._begun_tail, self._begun_mask = begun[1] // _WORD, words[begun[2] // _WORD]
        self._ended_head, self._ended_tail = ended[0] // _WORD, ended[1] // _WORD
        self._ended_mask, self._ended_at = words[ended[2] // _WORD], ended[5]
        for entry in range(begun_count):
            words[begun[6] // _WORD + entry] = entry
        self._fd, self._number, self._event_fd = fd, ctypes.c_long(fd), event_fd

    @staticmethod
    def open() -> IoUring | None:
        """``None`` if the system has no such rings, or gives none to this process."""
        if platform.machine() not in MACHINES:
            return None
        params = ctypes.create_string_buffer(_PARAMS_SIZE)
        fd = system_call(_SETUP, ctypes.c_long(IN_FLIGHT_MAX), params)
        if fd < 0:
            return None
        event_fd = open_event_fd()
        (features,) = struct.unpack_from("=I", params, _FEATURES_AT)
        if event_fd is not None and features & _FEATURES == _FEATURES:
            try:
                ring = IoUring(fd, params.raw, event_fd)
            except OSError:
                pass
            else:
                if ring._register(_REGISTER_EVENTFD, event_fd):
                    return ring
                ring.close()
                return None
        os.close(fd)
        if event_fd is not None:
            os.close(event_fd)
        return None

    def _register(self, what: ctypes.c_long, fd: int) -> bool:
        number = ctypes.byref(ctypes.c_int(fd))
        return bool(system_call(_REGISTER, self._number, what, number, _ONE) == 0)

    def fileno(self) -> int:
        return self._event_fd

    def hold(self, fd: int) -> bool:
        """The file stays open until the kernel has ended all writes of the ring. An earlier one is
        given up."""
        system_call(_REGISTER, self._number, _UNREGISTER_FILES, None, _NONE)
        return self._register(_REGISTER_FILES, fd)

    def begin(self, slot: int, fd: int, address: int, size: int, position: int) -> bool:
        words, at = self._words, self._begun_tail
        tail = words[at]
        entry = _BEGUN.size * (tail & self._begun_mask)
        _BEGUN.pack_into(self._begun, entry, _WRITE, 0, 0, fd, position, address, size, DSYNC, slot)
        words[at] = tail + 1 & _COUNT_MASK
        if system_call(_ENTER, self._number, _ONE, _NONE, _NONE, None, _NONE) == 1:
            return True
        words[at] = tail  # the kernel has not taken it
        return False

    def ended(self, *, wait: bool) -> list[tuple[int, int]]:
        if wait and system_call(_ENTER, self._number, _NONE, _ONE, _WAIT, None, _NONE) < 0:
            error = ctypes.get_errno()
            if error != errno.EINTR:
                raise OSError(error, os.strerror(error), "io_uring_enter")
        words = self._words
        head, tail = words[self._ended_head], words[self._ended_tail]
        found = []
        while head != tail:
            at = self._ended_at + _ENDED.size * (head & self._ended_mask)
            slot, result, _ = _ENDED.unpack_from(self._rings, at)
            found.append((slot, result))
            head = head + 1 & _COUNT_MASK
        words[self._ended_head] = head
        return found

    def close(self) -> None:
        self._words.release()
        self._rings.close()
        self._begun.close()
        os.close(self._fd)
        os.close(self._event_fd)
        self._fd = self._event_fd = -1


_NONE, _ONE = ctypes.c_long(0), ctypes.c_long(1)
