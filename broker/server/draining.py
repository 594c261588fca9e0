"""Draining for a rolling restart without errors for clients: another member leads before this one
ends.

Clients learn of the new leader with their next route; Apache's ask for it every 30 s. Until then
this broker forwards their requests (:mod:`broker.remoting.forwarder`). Routes for gRPC clients name
only the other nodes (:mod:`broker.grpc.routes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker.change_notice import ChangeNotice
from dledger.node.node import Node
from dledger.node.state_machine import Leadership

TRANSFER_SECONDS = 2.0
"""How long a stopping leader waits for another one: for a transfer, or an election if that
fails."""


class Draining:
    """Drains one broker; tracks when it last led."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node: Node, leads_elsewhere: Callable[[], bool]
    ) -> None:
        """``leads_elsewhere``: whether another member leads, at a known address."""
        self._loop = loop
        self._notice = ChangeNotice(loop)
        self._node = node
        self.leads_elsewhere = leads_elsewhere
        self._serving = False
        self._led_until: float | None = None
        """The loop's time at which this broker ceased to lead."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """Called at each change of leadership."""
        if self._serving and not leadership.serving:
            self._led_until = self._loop.time()
        self._serving = leadership.serving
        self._notice.changed()

    def clients_changed(self) -> None:
        """Called when a connection has closed, or turned out to be another broker's."""
        self._notice.changed()

    async def transfer_leadership(self, seconds: float) -> bool:
        """Transfers the leadership, if this member leads. Returns whether clients may still take
        this member for the leader: another one leads, and this one led within the last
        ``seconds``."""
        self._node.health.stops()
        if self._serving:
            await self._notice.wait_until(self.leads_elsewhere, TRANSFER_SECONDS)
        led = self._led_until
        recently = led is not None and self._loop.time() - led < seconds
        return recently and self.leads_elsewhere()

    async def wait_for_clients(
        self, has_clients: Sequence[Callable[[], bool]], seconds: float
    ) -> None:
        """Waits until no port has clients any more, at most ``seconds``."""
        await self._notice.wait_until(lambda: not any(each() for each in has_clients), seconds)
