"""The signals that ask a command to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""At these a command ends what it has started. SIGHUP: its terminal was closed."""

Handler = Callable[[int, FrameType | None], object] | int | None


def handled_signals() -> set[signal.Signals]:
    """Those that are not ignored, as SIGHUP is under nohup."""
    return {
        sig for sig in TERMINATION_SIGNALS if signal.getsignal(sig) not in (signal.SIG_IGN, None)
    }


def interrupt_on_ending() -> None:
    """From now on each of them raises ``KeyboardInterrupt``, as Ctrl-C does.

    Apart from Ctrl-C only the first signal counts: supervisors may send several, and they must not
    interrupt the end.
    """
    for sig in handled_signals() - {signal.SIGINT}:
        signal.signal(sig, _interrupt)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    for sig in handled_signals() - {signal.SIGINT}:
        signal.signal(sig, signal.SIG_IGN)
    ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(ctrl_c):  # ignored, as in a background job of a script
        raise KeyboardInterrupt
    ctrl_c(signal.SIGINT, frame)  # an event loop has its own, which lets its tasks end first


@contextmanager
def signals_blocked() -> Iterator[None]:
    """They take effect at the end of the block, as they would have within it.

    They are not blocked, because a process that starts in the block would inherit that. Only the
    main thread holds signals back: a handled signal interrupts no other thread.
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
