"""A rolling restart that clients do not notice: another member leads before this one is gone.

Clients learn of the new leader with their next route, for which Apache's ask every 30 s. Until then
this broker forwards what they send (:mod:`broker.remoting.forwarder`). To clients of gRPC it names
the other nodes alone (:mod:`broker.grpc.routes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker.change_notice import ChangeNotice
from dledger.node.node import Node
from dledger.node.state_machine import Leadership

HAND_OVER_SECONDS = 2.0
"""How long a stopping leader waits for another one: a transfer, or an election where it fails."""


class Draining:
    """Knows when this broker last led."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node: Node, leads_elsewhere: Callable[[], bool]
    ) -> None:
        """``leads_elsewhere``: whether another member leads whose address is known."""
        self._loop = loop
        self._notice = ChangeNotice(loop)
        self._node = node
        self.leads_elsewhere = leads_elsewhere
        self._serving = False
        self._led_until: float | None = None
        """When this broker ceased to lead, by the loop's time."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """Is told of each change."""
        if self._serving and not leadership.serving:
            self._led_until = self._loop.time()
        self._serving = leadership.serving
        self._notice.changed()

    def clients_changed(self) -> None:
        """Is told when a connection has closed, or turned out to be another broker's."""
        self._notice.changed()

    async def hand_over(self, seconds: float) -> bool:
        """Lets another member lead, if this one does. Returns whether clients may still take this
        one for the leader: another one leads, and this one did within the last ``seconds``."""
        if self._serving:
            self._node.health.hand_over()
            await self._notice.wait_until(self.leads_elsewhere, HAND_OVER_SECONDS)
        led = self._led_until
        recently = led is not None and self._loop.time() - led < seconds
        return recently and self.leads_elsewhere()

    async def wait_for_clients(
        self, has_clients: Sequence[Callable[[], bool]], seconds: float
    ) -> None:
        """Returns when no port has clients any more, after ``seconds`` at the latest."""
        await self._notice.wait_until(lambda: not any(each() for each in has_clients), seconds)
