"""When a member sends its heartbeats."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.consumer.group_membership import GroupMembership, Share
from broker.client.message import MessageQueue
from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from broker.filter.subscription import Subscription
from simulator.engine.event_loop import VirtualLoop

HEARTBEAT_SECONDS = 5.0
UNLUCKY_TIME = 13.498382261231663
"""(13.498382261231663 + 5.0) - 13.498382261231663 is less than 5.0 in floating point."""


class Leader:
    """The routes and the requests of a client in one: a broker that always answers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.heard_at: list[float] = []
        self._loop = loop

    def cached(self, topic: str) -> TopicRoute:
        queues = (MessageQueue(topic, "broker-a", 0),)
        return TopicRoute(topic, queues, queues, {"broker-a": {0: "10.0.0.1:10911"}})

    async def get(self, topic: str) -> TopicRoute:
        return self.cached(topic)

    async def heartbeat(self, *_: Any, **__: Any) -> None:
        self.heard_at.append(self._loop.time())

    async def client_ids(self, _address: str) -> list[str]:
        return ["me"]


async def _take(_share: Share) -> None:
    """Whatever it is."""


def test_a_heartbeat_is_sent_when_it_is_due_however_the_sum_is_rounded() -> None:
    assert (UNLUCKY_TIME + HEARTBEAT_SECONDS) - UNLUCKY_TIME < HEARTBEAT_SECONDS
    loop = VirtualLoop()
    leader = Leader(loop)

    async def script() -> None:
        await asyncio.sleep(UNLUCKY_TIME)
        membership = GroupMembership(
            loop=loop,
            routes=cast("Routes", leader),
            requests=cast("ConsumerRequests", leader),
            config=ConsumerConfig(heartbeat_seconds=HEARTBEAT_SECONDS, rebalance_seconds=60.0),
            client_id="me",
            subscriptions={"T": Subscription("T", "*", 1)},
            broadcast=False,
            latest=False,
            assign=_take,
        )
        membership.start()
        await asyncio.sleep(2.5 * HEARTBEAT_SECONDS)

    loop.run_until_complete(script())
    loop.close()
    first = leader.heard_at[0]
    assert first == UNLUCKY_TIME
    assert leader.heard_at == [first, first + HEARTBEAT_SECONDS, first + 2 * HEARTBEAT_SECONDS]
