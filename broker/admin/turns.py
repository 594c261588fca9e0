"""Long lists for operators, made in turns."""

from __future__ import annotations

import asyncio

ITEMS_PER_TURN = 4096
"""Queues and offsets that are looked at before the event loop goes on: a few milliseconds."""


class Turn:
    """Lets the event loop go on now and then while a long list is made."""

    def __init__(self) -> None:
        self._steps = 0

    async def took(self, steps: int) -> None:
        """An item of the list took so many steps."""
        self._steps += 1 + steps
        if self._steps >= ITEMS_PER_TURN:
            self._steps = 0
            await asyncio.sleep(0)
