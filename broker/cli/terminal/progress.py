"""The progress of a long command: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

REDRAW_SECONDS = 0.2


class Progress:
    """Counts; ``label`` says what. ``clock`` gives seconds. Without a ``total`` no bar is shown.
    As a context it ends after its block.

    It draws at a count, at most five times a second, and starts no thread.
    """

    def __init__(
        self, label: str, clock: Callable[[], float] = time.perf_counter, total: int | None = None
    ) -> None:
        self._label = label
        self._clock = clock
        self._began = self._drawn = clock()
        self._total = total
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._shown = sys.stderr.isatty()
        self.count = 0

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return self._clock() - self._began

    @property
    def rate(self) -> float:
        """The count per second."""
        return self.count / max(self.seconds, 1e-9)

    def add(self, count: int = 1, said: str = "") -> None:
        """Counts ``count`` more; ``said`` is shown at the end of the line."""
        self.count += count
        if self._shown and self._clock() - self._drawn >= REDRAW_SECONDS:
            self._draw(said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Clears the line, until the next count."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, said: str) -> None:
        self._drawn = self._clock()
        if self._bar is None:
            self._bar = _new_bar(counted=self._total is not None)
            self._task = self._bar.add_task(self._label, total=self._total, rate="", said="")
            self._bar.start()
        assert self._task is not None  # noqa: S101 - made with the bar
        rate = f"{self.rate:,.0f}/s" if self.rate >= 10 else f"{self.rate:.1f}/s"
        self._bar.update(self._task, completed=self.count, refresh=True, rate=rate, said=said)


def _new_bar(*, counted: bool) -> RichProgress:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    of_total = " of {task.total:,.0f}" if counted else ""
    count = TextColumn("{task.completed:,.0f}" + of_total + " {task.description}")
    rate = TextColumn("{task.fields[rate]} {task.fields[said]}")
    columns = (BarColumn(24), count, TimeRemainingColumn(), rate) if counted else (count, rate)
    # Log lines of the cluster are printed above; only this line is redrawn.
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Shows what the command waits for while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only on a terminal

    with Console(stderr=True).status(f"{label} ..."):
        yield
