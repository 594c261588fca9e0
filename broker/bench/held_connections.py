"""Many connected clients with few requests."""

from __future__ import annotations

import asyncio
from typing import Self

from broker.bench.jobs import ConnectionsJob
from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.message import MessageQueue
from broker.filter.subscription import ALL, Subscription
from broker.remoting.client import RemotingClient

CONNECTING_AT_ONCE = 100
CONFIG = ConsumerConfig()


class HeldConnections:
    """Connections to one broker: half of them wait in a held pull, the others are idle."""

    def __init__(self) -> None:
        self._clients: list[RemotingClient] = []
        self._pulls: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def hold(self, job: ConnectionsJob) -> None:
        """Opens the connections of the job, and closes earlier ones.

        Raises a :class:`~broker.remoting.protocol.errors.CallError` if one cannot be made.
        """
        await self.close()
        while len(self._clients) < job.count:
            count = min(CONNECTING_AT_ONCE, job.count - len(self._clients))
            await asyncio.gather(*(self._connect(job) for _ in range(count)))

    async def close(self) -> None:
        """Closes all connections."""
        for pull in self._pulls:
            pull.cancel()
        await asyncio.gather(*self._pulls, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients))
        self._pulls, self._clients = [], []

    async def _connect(self, job: ConnectionsJob) -> None:
        number = len(self._clients)
        client = RemotingClient(asyncio.get_running_loop())
        self._clients.append(client)
        requests = ConsumerRequests(client, CONFIG, "dledger-bench", f"held-{number}")
        queue = MessageQueue(job.topic, "", 0)
        await requests.max_offset(job.address, queue)
        if number % 2:
            self._pulls.append(asyncio.create_task(_pull(requests, job.address, queue)))


async def _pull(requests: ConsumerRequests, address: str, queue: MessageQueue) -> None:
    """Pulls again whenever the broker has held the pull for its longest time."""
    subscription = Subscription(queue.topic, ALL, 0)
    while True:
        await requests.pull(address, queue, 0, subscription)
