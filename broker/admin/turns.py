"""Makes long lists for operators in several turns of the event loop."""

from __future__ import annotations

import asyncio

ITEMS_PER_TURN = 4096
"""Queues and offsets that are read in one turn: a few milliseconds of work."""


class Turn:
    """Gives other tasks a turn now and then while a long list is made."""

    def __init__(self) -> None:
        self._steps = 0

    async def took(self, steps: int) -> None:
        """Counts the steps of an item of the list; yields after many."""
        self._steps += 1 + steps
        if self._steps >= ITEMS_PER_TURN:
            self._steps = 0
            await asyncio.sleep(0)
