"""The progress of a long command: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time

WIDTH = 24
REDRAW_SECONDS = 0.1


class Progress:
    """``total`` steps of something, drawn on standard error."""

    def __init__(self, total: int, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._began = time.perf_counter()
        self._drawn_at = 0.0
        self._shown = sys.stderr.isatty()

    def update(self, done: int, said: str = "") -> None:
        """So many are done; ``said`` is put behind the bar."""
        now = time.perf_counter()
        if not self._shown or (now - self._drawn_at < REDRAW_SECONDS and done < self._total):
            return
        self._drawn_at = now
        filled = WIDTH * min(done, self._total) // max(self._total, 1)
        rate = done / max(now - self._began, 1e-9)
        bar = "#" * filled + "." * (WIDTH - filled)
        line = f"[{bar}] {done}/{self._total} {self._unit}, {rate:.1f}/s {said}"
        print(f"\r{line[:118]:<118}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Takes the line away."""
        if self._shown:
            print(f"\r{'':<118}\r", end="", file=sys.stderr, flush=True)
