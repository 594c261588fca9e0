"""Clients that use consumer offsets and topics as registers, to test linearizability.

Each waits for its answer before it asks again. A refused operation did not happen; an unanswered
one may happen at any later time. The values go up and down: see ``workload/register_values.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random

import orjson

from broker.client.client_identity import ClientIdentity
from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.errors import ClientError, RefusedError, outcome_unknown, refusal
from broker.client.message import MessageQueue
from broker.client.producer.producer import Producer
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from simulator.hosts.broker_host import GROUP
from simulator.hosts.client_host import ClientHost
from simulator.linearizability.checker import Operation
from simulator.workload.client_connections import ClientConnections
from simulator.workload.name_server import NAME_SERVERS
from simulator.workload.producer import CONFIG as PRODUCER_CONFIG
from simulator.workload.register_values import OFFSET_REGISTERS, RegisterValues, fill
from simulator.workload.register_values import TOPIC as OFFSETS_TOPIC
from simulator.workload.stoppable_client import StoppableClient

CONFIG = ConsumerConfig(request_seconds=1.5)
TOPIC_REGISTERS = 2
QUEUES_PRIME, QUEUES_STEP = 4_001, 1_237
"""Numbers of queues for topics: steps around a circle, so that none is repeated."""


class RegisterHistory:
    """The operations of all clients. No value is written to a register twice."""

    def __init__(self, rng: Random) -> None:
        self.operations: list[Operation] = []
        self.open: dict[int, Operation] = {}
        self.offsets = RegisterValues(rng)
        self._queues = count(1)
        self._numbers = count()

    def next_queues(self) -> int:
        """A number of queues that no topic had yet. It rises and falls."""
        return next(self._queues) * QUEUES_STEP % QUEUES_PRIME

    def begin(self, operation: Operation) -> int:
        """An operation begins. Returns its number."""
        number = next(self._numbers)
        self.open[number] = operation
        return number

    def end(self, number: int, operation: Operation | None) -> None:
        """An operation was answered, or (``None``) had no effect."""
        del self.open[number]
        if operation is not None:
            self.operations.append(operation)

    def unknown(self) -> list[Operation]:
        """Writes that still wait for their answers."""
        return [operation for operation in self.open.values() if operation.is_write]

    def client_ended(self, client: str) -> None:
        """The client's process died: its writes may happen, its reads are unknown."""
        for number in [n for n, each in self.open.items() if each.client == client]:
            operation = self.open[number]
            self.end(number, operation if operation.is_write else None)


class RegisterRequests(ConsumerRequests):
    """Requests to brokers; see :class:`ConsumerRequests` for what is raised."""

    def of_group(self, group: str) -> RegisterRequests:
        """The same requests for another group."""
        return RegisterRequests(self._remoting, self._config, group, self._client_id)

    async def make_topic(self, address: str) -> None:
        """Makes the topic in whose range offsets are written."""
        fields = {"topic": OFFSETS_TOPIC, "perm": "6"}
        fields |= dict.fromkeys(("readQueueNums", "writeQueueNums"), str(OFFSET_REGISTERS))
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        answer = await self._remoting.invoke(address, code, fields, timeout=CONFIG.request_seconds)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(address, answer.code, answer.remark)

    async def topic_register(
        self, address: str, place: int, is_write: bool, value: int | None
    ) -> int | None:
        """The number of write queues of a topic is the value; without the topic there is none."""
        fields = {"topic": f"register-{place}"}
        if not is_write:
            code = RequestCode.GET_TOPIC_CONFIG
        elif value is None:
            code = RequestCode.DELETE_TOPIC_IN_BROKER
        else:
            code = RequestCode.UPDATE_AND_CREATE_TOPIC
            fields |= {"readQueueNums": "1", "writeQueueNums": str(value), "perm": "6"}
        answer = await self._remoting.invoke(address, code, fields, timeout=CONFIG.request_seconds)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST and not is_write:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(address, answer.code, answer.remark)
        return value if is_write else int(orjson.loads(answer.body)["writeQueueNums"])


class RegisterClient(StoppableClient):
    """Asks every ``pause_max`` seconds at most, as one process."""

    def __init__(
        self,
        topic: str,
        history: RegisterHistory,
        rng: Random,
        *,
        pause_max: float,
        at_followers: bool = False,
        write_share: float = 0.5,
        bursts: Sequence[int] = (1,),
        fills: bool = False,
    ) -> None:
        """``at_followers`` reads at any broker, not only at the leader. Of the operations
        ``write_share`` are writes: a client that only reads does not learn that its leader is
        deposed. ``bursts``: the numbers of registers that it may ask for at the same instant. With
        ``fills`` the client first makes the queues of the offsets; until then nobody asks for
        those."""
        self._topic = topic
        self._history = history
        self._rng = rng
        self._pause_max = pause_max
        self._at_followers = at_followers
        self._write_share = write_share
        self._bursts = bursts
        self._fills = fills
        self._requests: RegisterRequests | None = None

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        connections = ClientConnections(client_host, self._rng)
        remoting, routes = connections.remoting, connections.routes
        client_id = ClientIdentity(client_host.ip, client_host.boot, 1).client_id
        requests = RegisterRequests(remoting, CONFIG, self._history.offsets.group(0), client_id)
        queue = MessageQueue(self._topic, GROUP, 0)
        self._requests = requests
        while self._working:
            await asyncio.sleep(self._rng.uniform(0.01, self._pause_max))
            if not self._working:
                break
            try:
                route = await routes.get(self._topic)
                address = reader = routes.leader(queue)
                if self._fills and not self._history.offsets.filled:
                    await self._fill(client_host, requests, address)
                if self._at_followers:
                    reader = self._rng.choice(sorted(route.brokers[GROUP].values()))
            except (ClientError, CallError):
                await routes.recover(self._topic, GROUP)
                continue
            if not await self._ask(client_host, requests, address, reader):
                await routes.recover(self._topic, GROUP)
        self._requests = None
        await connections.close()

    def ask_at_once(self, client_host: ClientHost, address: str, is_write: bool) -> None:
        """Writes all registers there, or reads them, beside its own requests; as an event of its
        process."""
        requests = self._requests
        if requests is None or not self._working:
            return
        registers = [(False, place) for place in range(TOPIC_REGISTERS)]
        if self._history.offsets.filled:
            registers += [(True, place) for place in range(OFFSET_REGISTERS)]
        for register in registers:
            asked = self._ask_for(client_host, requests, address, register, is_write)
            client_host.loop.create_task(asked)

    async def _fill(
        self, client_host: ClientHost, requests: RegisterRequests, address: str
    ) -> None:
        await requests.make_topic(address)
        producer = Producer(
            NAME_SERVERS,
            PRODUCER_CONFIG,
            wall_clock=client_host.clock.wall_ms,
            rng=self._rng,
            identity=ClientIdentity(client_host.ip, client_host.boot, 2),
        )
        await producer.start()
        try:
            await fill(producer, requests, address, GROUP)
        except (ClientError, CallError):
            await producer.close()
            raise
        await producer.close()
        self._history.offsets.filled = True
        client_host.note("has filled the queues whose offsets are written")

    async def _ask(
        self, client_host: ClientHost, requests: RegisterRequests, leader: str, reader: str
    ) -> bool:
        """Asks for one register, or for several at the same instant; False if one fails.

        Never one register twice: a client's operations on it are one after the other.
        """
        rng = self._rng
        chosen: dict[tuple[bool, int], bool] = {}
        for _ in range(rng.choice(self._bursts) if len(self._bursts) > 1 else 1):
            is_write = rng.random() < self._write_share
            of_offsets = rng.random() < 0.6 and self._history.offsets.filled
            place = rng.randrange(OFFSET_REGISTERS if of_offsets else TOPIC_REGISTERS)
            chosen[of_offsets, place] = is_write
        asked = [
            self._ask_for(client_host, requests, leader if is_write else reader, register, is_write)
            for register, is_write in chosen.items()
        ]
        if len(asked) == 1:
            return await asked[0]
        return all(await asyncio.gather(*asked))

    async def _ask_for(
        self,
        client_host: ClientHost,
        requests: RegisterRequests,
        address: str,
        chosen: tuple[bool, int],
        is_write: bool,
    ) -> bool:
        of_offsets, place = chosen
        offsets = self._history.offsets
        register, value = f"topic {place}", None
        if of_offsets:
            value = offsets.next_value(place) if is_write else None
            register = f"offset {place} of {offsets.group(place)}"
            requests = requests.of_group(offsets.group(place))
        elif is_write and self._rng.random() < 0.8:
            value = self._history.next_queues()
        asked = Operation(client_host.name, register, is_write, value, client_host.true_time)
        number = self._history.begin(asked)
        try:
            if of_offsets:
                queue = MessageQueue(OFFSETS_TOPIC, GROUP, place)
                if value is not None:
                    await requests.commit_offset(address, queue, value)
                else:
                    value = await requests.committed_offset(address, queue)
            else:
                value = await requests.topic_register(address, place, is_write, value)
        except (ClientError, CallError) as error:
            unknown = not isinstance(error, RefusedError) or outcome_unknown(error)
            self._history.end(number, asked if is_write and unknown else None)
            client_host.note(f"{type(error).__name__}: {error}")
            return False
        client_host.note(f"{register} {'written' if is_write else 'read'}: {value}")
        self._history.end(number, replace(asked, value=value, ended_at=client_host.true_time))
        return True
