"""The clocks of one machine: one that is set and jumps, and one that only runs, at its own speed.

Shipped code may use the first for timestamps alone, and the second for every duration. Both may be
wrong on some machines without any promise being broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.engine.event_loop import VirtualLoop

EPOCH_MS = 1_700_000_000_000


class MachineClock:
    """``rate``: seconds that it counts in a true second; ``offset_ms``: how wrong it is set."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.rate = 1.0
        self.offset_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970, by the clock of this machine."""
        return EPOCH_MS + self.offset_ms + int(self._loop.time() * self.rate * 1000)

    def jump(self, milliseconds: int) -> None:
        """Sets the clock."""
        self.offset_ms += milliseconds
