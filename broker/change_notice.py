"""Waiting for something to become true that changes now and then, such as who leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeNotice:
    """Wakes those who wait, each time it is told that something changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed: asyncio.Future[None] | None = None
        """None while nobody waits."""

    def changed(self) -> None:
        """Who waits looks again."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def wait_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Returns once it is reached, or after ``seconds``; whether it is reached."""
        deadline = self._loop.time() + seconds
        while not reached() and (left := deadline - self._loop.time()) > 0:
            if self._changed is None:
                self._changed = self._loop.create_future()
            await asyncio.wait({self._changed}, timeout=left)
        return reached()
