"""The history of two broker groups: the checks of each hear what happens in its queues.

An operator makes the topics at both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from broker.client.errors import ClientError
from broker.client.message import MessageQueue
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from simulator.hosts.client_host import ClientHost
from simulator.workload.client_connections import ClientConnections
from simulator.workload.history import History, Listener

DEFAULT_TOPIC = "TBW102"
"""A topic of every broker, so its route names all brokers."""

PAUSE_SECONDS = 0.1


class TwoGroupsHistory(History):
    """Messages have one numbering. ``others``: histories with the listeners of one group."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        super().__init__(note)
        self.others: dict[str, History] = {}

    @property
    def all_listeners(self) -> Sequence[Listener]:
        """See :class:`History`."""
        others = [listener for other in self.others.values() for listener in other.listeners]
        return [*self.listeners, *others]

    def listeners_of(self, queue: MessageQueue) -> Sequence[Listener]:
        """See :class:`History`."""
        other = self.others.get(queue.broker)
        return self.listeners if other is None else other.listeners


class TopicMaker:
    """Makes topics with this number of queues at the leader of each group, until all are there."""

    def __init__(
        self,
        *,
        groups: Sequence[str],
        topics: Sequence[str],
        queues: int,
        rng: Random,
        made: Callable[[], None],
    ) -> None:
        """``made`` is called when all are there."""
        self._made = made
        self._wanted = [(group, topic) for group in groups for topic in topics]
        self._queues = queues
        self._rng = rng

    @property
    def done(self) -> bool:
        """Whether both groups have all of them."""
        return not self._wanted

    async def main(self, client_host: ClientHost) -> None:
        """The process of the operator."""
        connections = ClientConnections(client_host, self._rng)
        routes = connections.routes
        while self._wanted:
            group, topic = self._wanted[0]
            try:
                await routes.refresh(DEFAULT_TOPIC)
                address = routes.leader(MessageQueue(DEFAULT_TOPIC, group, 0))
                await self._make(connections, address, topic)
            except (ClientError, CallError) as error:
                client_host.note(f"{topic} is not made: {type(error).__name__}: {error}")
                await asyncio.sleep(PAUSE_SECONDS)
        client_host.note("has made all topics")
        self._made()
        await connections.close()

    async def _make(self, connections: ClientConnections, address: str, topic: str) -> None:
        count = str(self._queues)
        fields = {"topic": topic, "readQueueNums": count, "writeQueueNums": count, "perm": "6"}
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        answer = await connections.ask(address, code, fields)
        if answer.code == ResponseCode.SUCCESS:
            del self._wanted[0]
        else:
            await asyncio.sleep(PAUSE_SECONDS)
