"""Waiting for a condition that seldom changes, such as which node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeNotice:
    """Wakes all waiters at each change."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed: asyncio.Future[None] | None = None
        """None while nobody waits."""

    def changed(self) -> None:
        """Makes each waiter check its condition again."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def wait_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Waits until ``reached()`` is true, at most ``seconds``. Returns whether it is true."""
        deadline = self._loop.time() + seconds
        while not reached() and (left := deadline - self._loop.time()) > 0:
            if self._changed is None:
                self._changed = self._loop.create_future()
            await asyncio.wait({self._changed}, timeout=left)
        return reached()
