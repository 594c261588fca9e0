"""Opening files when the process or the system has no descriptor left (``EMFILE``, ``ENFILE``).

The disk has not failed then. So this must be taken neither for damage nor for a failed write. Some
descriptors are kept in reserve, and are closed one by one so that files can be opened. If none is
left, the thread waits, as for a slow disk. If that does not help either, it gets an
:class:`~store.errors.OutOfDescriptorsError`, which is no ``OSError``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from store.errors import OutOfDescriptorsError

P = ParamSpec("P")
T = TypeVar("T")

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

RESERVED = 64
"""More than the threads of a node ever open at once, and those of a few GB of new log."""

WAIT_SECONDS = 300.0
_LOOK_SECONDS = 0.02


class DescriptorReserve:
    """Descriptors that are kept for files. May be used by any thread."""

    def __init__(
        self,
        count: int = RESERVED,
        *,
        may_wait: Callable[[], bool] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``may_wait``: whether the calling thread may; by default, if it is not the main thread,
        on which the event loop runs."""
        self._count = count
        self._may_wait = may_wait or _is_not_main_thread
        self._sleep = sleep
        self._lock = threading.Lock()
        self._kept: list[int] = []
        self._refill()

    @property
    def left(self) -> int:
        """How many are in reserve now."""
        return len(self._kept)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """As ``os.open``."""
        return self.attempt(path, os.open, path, flags, mode)

    def attempt(self, path: str, opening: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Does what opens ``path``. Raises what that raises, but for a lack of descriptors."""
        if len(self._kept) < self._count:
            self._refill()
        try:
            return opening(*args, **more)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            lacking = error
        for _ in range(self._attempts()):
            if not self._give_up_one():
                self._sleep(_LOOK_SECONDS)
            try:
                return opening(*args, **more)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                lacking = error
        raise OutOfDescriptorsError(f"{path} cannot be opened now: {lacking.strerror}") from lacking

    def close(self) -> None:
        """Gives all of them up."""
        self._count = 0
        while self._give_up_one():
            pass

    def _attempts(self) -> int:
        return len(self._kept) + (int(WAIT_SECONDS / _LOOK_SECONDS) if self._may_wait() else 0)

    def _give_up_one(self) -> bool:
        with self._lock:
            if self._kept:
                os.close(self._kept.pop())
                return True
        return False

    def _refill(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._kept) < self._count:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _is_not_main_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()
