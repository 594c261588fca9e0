"""An operator who resets offsets of a group while it consumes: request 222, as tools send it."""

from __future__ import annotations

import asyncio
from random import Random

from broker.client.consumer.offset_reset_body import reset_offsets
from broker.client.errors import ClientError
from broker.client.message import MessageQueue
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.ext_fields import ext_int
from simulator.hosts.broker_host import GROUP as BROKER
from simulator.hosts.client_host import ClientHost
from simulator.workload.client_connections import ClientConnections
from simulator.workload.java_requests import QUERY_OFFSET, RESET, SUCCESS
from simulator.workload.stoppable_client import StoppableClient

PAUSE_SECONDS = (0.5, 4.0)
MAX_OFFSET = 30


class OffsetResetOperator(StoppableClient):
    """Resets the group's offset of one queue after the other to an earlier one."""

    def __init__(self, group: str, topic: str, rng: Random) -> None:
        self._group = group
        self._topic = topic
        self._rng = rng
        self.reset_to: dict[MessageQueue, int] | None = None
        """After :meth:`reset_all`: the new offsets of the queues."""
        self._all_wanted = False

    def reset_all(self) -> None:
        """Resets the group to the beginning of all queues, as soon as that is possible."""
        self.reset_to, self._all_wanted = None, True

    async def main(self, client_host: ClientHost) -> None:
        """The process of the operator."""
        connections = ClientConnections(client_host, self._rng)
        while True:
            await asyncio.sleep(0.2 if self._all_wanted else self._rng.uniform(*PAUSE_SECONDS))
            try:
                if self._all_wanted:
                    self.reset_to = await self._reset(connections, 0, -1)
                    self._all_wanted = self.reset_to is None
                elif self._working:
                    await self._reset_one(connections)
            except (CallError, ClientError) as error:
                client_host.note(f"moves nothing: {error}")
                await connections.routes.recover(self._topic, BROKER)

    async def _reset_one(self, connections: ClientConnections) -> None:
        routes = connections.routes
        route = await routes.get(self._topic)
        queue = self._rng.choice(route.read_queues)
        ext = {"topic": queue.topic, "queueId": str(queue.queue_id), "consumerGroup": self._group}
        leader = routes.leader(queue)
        committed = await connections.ask(leader, QUERY_OFFSET, ext)
        end = await connections.ask(leader, MAX_OFFSET, ext)
        if (committed.code, end.code) != (SUCCESS, SUCCESS):
            await routes.refresh(self._topic)
            return
        # The first offset is never ahead of the group, unless the group has been there.
        known = ext_int(committed, "offset") > 0
        last = ext_int(end, "offset") if known else 0
        offset = self._rng.choice((last, self._rng.randint(0, last)))
        moved = await self._reset(connections, offset, queue.queue_id)
        if moved is not None:
            connections.host.note(f"has moved the group: {moved}")

    async def _reset(
        self, connections: ClientConnections, offset: int, queue_id: int
    ) -> dict[MessageQueue, int] | None:
        """Where the broker says that the group goes on; None if it was not moved."""
        route = await connections.routes.get(self._topic)
        ext = {
            "topic": self._topic,
            "group": self._group,
            "timestamp": "0",
            "isForce": "false",
            "offset": str(offset),
            "queueId": str(queue_id),
        }
        leader = connections.routes.leader(route.read_queues[0])
        answer = await connections.ask(leader, RESET, ext)
        if answer.code != SUCCESS:
            await connections.routes.refresh(self._topic)
            return None
        return reset_offsets(answer.body)
