"""The signals that ask a command to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals at which a command ends the processes that it has started. SIGHUP: its terminal was
closed."""

Handler = Callable[[int, FrameType | None], object] | int | None


def handled_signals() -> set[signal.Signals]:
    """These signals without ignored ones, such as SIGHUP under nohup."""
    return {
        sig for sig in TERMINATION_SIGNALS if signal.getsignal(sig) not in (signal.SIG_IGN, None)
    }


def interrupt_on_ending() -> None:
    """Makes each of these signals raise ``KeyboardInterrupt``, as Ctrl-C does.

    Except for Ctrl-C, only the first signal counts: supervisors may send several, and these must
    not interrupt the cleanup.
    """
    for sig in handled_signals() - {signal.SIGINT}:
        signal.signal(sig, _interrupt)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    for sig in handled_signals() - {signal.SIGINT}:
        signal.signal(sig, signal.SIG_IGN)
    ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(ctrl_c):  # ignored, as in a background job of a script
        raise KeyboardInterrupt
    ctrl_c(signal.SIGINT, frame)  # an event loop has its own handler, which lets tasks end first


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Delays these signals until the end of the block.

    They are not blocked in the kernel, because a process that starts in the block would inherit
    that. Only the main thread delays signals: a handled signal interrupts no other thread.
    """
    came: list[int] = []
    handlers: dict[signal.Signals, Handler] = {}
    if threading.current_thread() is threading.main_thread():
        for sig in handled_signals():
            handlers[sig] = signal.signal(sig, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        for sig, handler in handlers.items():
            signal.signal(sig, handler)
        for number in came:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
