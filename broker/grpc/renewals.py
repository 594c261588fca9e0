"""Messages that stay invisible while their consumer works: ``auto_renew`` of a push consumer.

The leader makes such a message invisible for a short time, again and again, until it is
acknowledged, its consumer is gone, or hours have passed. So the messages of a consumer that died
are received again soon. Each renewal has another receipt handle. The consumer keeps its first one,
which is translated here. Another leader knows nothing of it: a message whose time was prolonged
before is received again when that time is up, and its consumer can no longer acknowledge it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.grpc.statuses import ANSWERED
from broker.limits import GRPC
from broker.pop.pop import Pop
from broker.pop.pop_request import PoppedMessage, PopRequest, ReceiptStatus


@dataclass(slots=True)
class _Renewed:
    """One delivery. ``handle`` is the newest one; times are by the loop."""

    group: str
    topic: str
    client_id: str
    handle: str
    until: float


class Renewals:
    """Of one broker, while it leads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pop: Pop,
        is_connected: Callable[[str, str], bool],
    ) -> None:
        """``is_connected``: whether a client is a member of a group."""
        self._loop = loop
        self._pop = pop
        self._is_connected = is_connected
        self._renewed: dict[str, _Renewed] = {}
        """By the handle that the consumer has."""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._renewed)

    def add(self, request: PopRequest, messages: Sequence[PoppedMessage]) -> None:
        """Renews these. Beyond the limit they are visible again after the first time."""
        until = self._loop.time() + GRPC.renewed_seconds_max
        for message in messages:
            if len(self._renewed) >= GRPC.renewals_max:
                break
            handle = message.receipt_handle
            self._renewed[handle] = _Renewed(
                request.group, request.topic, request.client_id, handle, until
            )
        if self._task is None:
            self._task = self._loop.create_task(self._renew())

    def current(self, handle: str) -> str:
        """The handle that counts now, for one that a consumer has."""
        known = self._renewed.get(handle)
        return handle if known is None else known.handle

    def ended(self, handle: str) -> str:
        """As :meth:`current`; it is not renewed any more."""
        known = self._renewed.pop(handle, None)
        return handle if known is None else known.handle

    def clear(self) -> None:
        """Another node leads."""
        self._renewed.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _renew(self) -> None:
        while self._renewed:
            await asyncio.sleep(GRPC.renewed_seconds / 2)
            for handle, known in list(self._renewed.items()):
                if self._renewed.get(handle) is known and not await self._is_renewed(known):
                    self._renewed.pop(handle, None)
        self._task = None

    async def _is_renewed(self, known: _Renewed) -> bool:
        if self._loop.time() >= known.until or not self._is_connected(known.group, known.client_id):
            return False
        try:
            result = await self._pop.change_invisible(
                known.group, known.topic, known.handle, int(GRPC.renewed_seconds * 1000)
            )
        except ANSWERED:
            return False
        known.handle = result.receipt_handle
        return result.status is ReceiptStatus.OK
