"""The progress of a long command: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

REDRAW_SECONDS = 0.2


class Progress:
    """Counts things; ``clock`` gives seconds (the event loop's time)."""

    def __init__(self, what: str, clock: Callable[[], float], total: int | None = None) -> None:
        self._what = what
        self._clock = clock
        self._total = total
        self._shown = sys.stderr.isatty()
        self._began = clock()
        self._drawn = self._began
        self.count = 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    @property
    def rate(self) -> float:
        """A second."""
        return self.count / max(self.seconds, 1e-9)

    def add(self, count: int) -> None:
        """``count`` more are done."""
        self.count += count
        if self._shown and self._clock() - self._drawn >= REDRAW_SECONDS:
            self._drawn = self._clock()
            of_total = "" if self._total is None else f" of {self._total:,}"
            line = f"{self.count:,}{of_total} {self._what}, {self.rate:,.0f}/s"
            sys.stderr.write(f"\r{line:<70}")
            sys.stderr.flush()

    def end(self) -> None:
        """Takes the line away."""
        if self._shown and self._drawn > self._began:
            sys.stderr.write(f"\r{'':<70}\r")
            sys.stderr.flush()
