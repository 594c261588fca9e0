"""Clients with transactions: half messages, their outcomes, repeated and late, and check-backs.

The decisions of such a client survive its crash, as in a database of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from broker.client.client_identity import ClientIdentity
from broker.client.errors import ClientError
from broker.client.message import Message
from broker.client.producer.producer import Producer
from broker.remoting.connection import Connection
from broker.remoting.processors.end_transaction import COMMIT, ROLLBACK, UNKNOWN
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from simulator.hosts.broker_host import GROUP
from simulator.hosts.client_host import ClientHost
from simulator.workload.client_connections import ClientConnections
from simulator.workload.history import NUMBER_BYTES, number_of
from simulator.workload.name_server import NAME_SERVERS
from simulator.workload.producer import CONFIG, DEADLINE_SECONDS
from simulator.workload.stoppable_client import StoppableClient
from store.message.record import decode_record

TOPIC = "payments"
PRODUCER_GROUP = "payers"
HEARTBEAT_SECONDS = 1.0
END_TRIES = 4
LATE_SECONDS = 4.0


@dataclass(slots=True)
class TransactionHistory:
    """The outcomes of the half messages, by number: True to commit, False to roll back, None while
    it is unknown whether it is stored."""

    outcomes: dict[int, bool | None] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    """Half messages that producers know of. If a clock has jumped a day, a retry may be stored once
    more: that one is nobody's transaction."""
    committed: Callable[[int], None] = lambda _number: None
    """Called when a producer has the answer that its commit is stored."""

    def begin(self) -> int:
        """The number of a new transaction."""
        number = len(self.outcomes)
        self.outcomes[number] = None
        return number


class TransactionalProducer(StoppableClient):
    """Sends every ``pause_max`` seconds at most, one transaction after the other.

    Once it is stopped, it still answers check-backs.
    """

    def __init__(self, history: TransactionHistory, rng: Random, *, pause_max: float) -> None:
        self._history = history
        self._rng = rng
        self._pause_max = pause_max
        self._sending: int | None = None
        self._finished: asyncio.Event

    def finish(self) -> None:
        """Ends the process in which it is called."""
        self._finished.set()

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client. A message that an earlier one did not see stored is rolled
        back."""
        if self._sending is not None:
            self._history.outcomes[self._sending] = False
        loop, rng = asyncio.get_running_loop(), self._rng
        self._finished = asyncio.Event()
        identity = ClientIdentity(client_host.ip, client_host.boot, rng.getrandbits(32))
        producer = Producer(
            NAME_SERVERS,
            CONFIG,
            wall_clock=client_host.clock.wall_ms,
            rng=rng,
            identity=identity,
        )
        handlers = {RequestCode.CHECK_TRANSACTION_STATE.value: self._check_back}
        connections = ClientConnections(client_host, rng, handlers)
        await producer.start()
        heart = loop.create_task(self._send_heartbeats(connections, identity.client_id))
        late: list[asyncio.Task[None]] = []
        while self._working:
            await asyncio.sleep(rng.uniform(0.01, self._pause_max))
            if self._working:
                await self._run_transaction(connections, producer, late)
        for task in late:
            await task
        await self._finished.wait()
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
        await connections.close()
        await producer.close()

    async def _run_transaction(
        self,
        connections: ClientConnections,
        producer: Producer,
        late: list[asyncio.Task[None]],
    ) -> None:
        history, rng = self._history, self._rng
        number = self._sending = history.begin()
        body = number.to_bytes(NUMBER_BYTES, "big")
        properties = {"TRAN_MSG": "true", "PGROUP": PRODUCER_GROUP}
        try:
            sent = await producer.send(Message(TOPIC, body, properties=properties))
        except (ClientError, CallError) as error:
            connections.host.note(f"half message {number}: {type(error).__name__}: {error}")
            history.outcomes[number] = False
            self._sending = None
            return
        commit = history.outcomes[number] = rng.random() < 0.5
        self._sending = None
        position = history.positions[number] = int(sent.message_ids[0][16:], 16)
        ext = {
            "producerGroup": PRODUCER_GROUP,
            "tranStateTableOffset": str(sent.queue_offset),
            "commitLogOffset": str(position),
            "commitOrRollback": str(COMMIT if commit else ROLLBACK),
            "msgId": sent.first_unique_key,
        }
        connections.host.note(
            f"half message {number} is stored, to {'commit' if commit else 'roll back'}"
        )
        how = rng.choice(("now", "now", "twice", "late", "asked"))
        if how in {"now", "twice"}:
            await self._end(connections, number, ext)
        if how in {"twice", "late"}:
            late.append(
                asyncio.get_running_loop().create_task(
                    self._end_late(connections, number, ext, rng.uniform(0, LATE_SECONDS))
                )
            )

    async def _end_late(
        self, connections: ClientConnections, number: int, ext: dict[str, str], seconds: float
    ) -> None:
        await asyncio.sleep(seconds)
        await self._end(connections, number, ext)

    async def _end(self, connections: ClientConnections, number: int, ext: dict[str, str]) -> None:
        for _ in range(END_TRIES):
            try:
                address = await _leader(connections)
                answer = await connections.ask(address, RequestCode.END_TRANSACTION, ext)
            except (ClientError, CallError):
                await asyncio.sleep(DEADLINE_SECONDS / 16)
                continue
            if answer.code == ResponseCode.SUCCESS and self._history.outcomes[number]:
                self._history.committed(number)
            if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                return
            await connections.routes.recover(TOPIC, GROUP)

    def _check_back(self, connection: Connection, request: Frame) -> None:
        record = decode_record(request.body)
        number = number_of(record.body)
        outcome = self._history.outcomes[number]
        if self._history.positions.get(number, record.position) != record.position:
            outcome = False
        said = UNKNOWN if outcome is None else COMMIT if outcome else ROLLBACK
        fields = ("tranStateTableOffset", "commitLogOffset", "msgId")
        ext = {name: ext_str(request, name) for name in fields}
        ext |= {"producerGroup": PRODUCER_GROUP, "commitOrRollback": str(said)}
        connection.push(RequestCode.END_TRANSACTION, ext)

    async def _send_heartbeats(self, connections: ClientConnections, client_id: str) -> None:
        body = b'{"clientID":"%b","producerDataSet":[{"groupName":"%b"}]}' % (
            client_id.encode(),
            PRODUCER_GROUP.encode(),
        )
        while True:
            try:
                leader = await _leader(connections)
                await connections.ask(leader, RequestCode.HEART_BEAT, {}, (body,))
                await asyncio.sleep(HEARTBEAT_SECONDS)
                await connections.routes.refresh(TOPIC)
            except (ClientError, CallError):
                await asyncio.sleep(HEARTBEAT_SECONDS / 2)
                await connections.routes.recover(TOPIC, GROUP)


async def _leader(connections: ClientConnections) -> str:
    """The address of the leader; raises a :class:`ClientError`."""
    route = await connections.routes.get(TOPIC)
    return connections.routes.leader(route.write_queues[0])
