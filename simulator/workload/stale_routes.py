"""Producers that keep an old route: they send to one broker, the leader or not.

Apache's clients ask for routes every 30 s. Until then they send to the broker that led.
"""

from __future__ import annotations

from typing import ClassVar

from broker.client.producer.pending_send import PendingSend
from broker.client.producer.queue_selection import Target
from broker.remoting.pending_requests import Done
from simulator.workload.producer import ApacheDeliverer, ApacheProducer


class StaleDispatcher(ApacheDeliverer):
    """Sends everything to the known broker with the lowest address, or to the one with the highest:
    each leads as seldom as any other."""

    highest: ClassVar[bool]

    def _send(self, delivery: PendingSend, target: Target, done: Done) -> None:
        route = self._routes.cached(delivery.topic)
        known = [] if route is None else list(route.brokers[target.queue.broker].values())
        choose = max if self.highest else min
        super()._send(delivery, target._replace(address=choose([*known, target.address])), done)


class _Lowest(StaleDispatcher):
    highest = False


class _Highest(StaleDispatcher):
    highest = True


class LowestProducer(ApacheProducer):
    """Sends to the broker with the lowest address."""

    send_dispatcher_class: ClassVar[type[ApacheDeliverer]] = _Lowest


class HighestProducer(ApacheProducer):
    """Sends to the broker with the highest address."""

    send_dispatcher_class: ClassVar[type[ApacheDeliverer]] = _Highest
