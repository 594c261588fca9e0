"""The clients of a soak: producers, one of transactions, members of a group, raw readers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random

from broker.client import (
    ClientError,
    Consumer,
    ConsumerConfig,
    Message,
    MessageQueue,
    Outcome,
    Producer,
    ProducerConfig,
    ReceivedMessage,
    RefusedError,
    SendResult,
    TransactionProducer,
)
from broker.client.client_identity import local_identity
from broker.client.consumer.consumer_requests import ConsumerRequests, pull_answer
from broker.client.errors import outcome_unknown
from broker.client.received_message import PulledBatch
from broker.client.route.route_cache import Routes
from broker.filter.subscription import ALL, Subscription
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.errors import CallError
from store.errors import CorruptRecordError
from tests.soak.record import Place, Record, Send

ORDERS, PAYMENTS = "orders", "payments"
TOPICS = (ORDERS, PAYMENTS)
READERS = "readers"
"""The consumer group."""

REGISTER = "register"
"""A group without members, whose offset one client sets."""

PRODUCER = ProducerConfig(deadline_seconds=20.0, request_seconds=2.0)
PAYER = ProducerConfig(group="payers", deadline_seconds=20.0, request_seconds=2.0)
MEMBER = ConsumerConfig(
    request_seconds=2.0,
    suspend_seconds=4.0,
    pull_seconds=6.0,
    heartbeat_seconds=4.0,
    rebalance_seconds=4.0,
    commit_seconds=1.0,
    close_seconds=3.0,
)
READER = ConsumerConfig(request_seconds=2.0, suspend_seconds=0.5, pull_seconds=4.0)
READ_SECONDS = 20.0
"""Within this time, a queue with messages gives one."""

FILLER_MAX = 700
IN_FLIGHT_MAX = 16
BATCH_MAX = 6
MEMBER_SECONDS = (8.0, 40.0)
"""Shortest and longest life of a member of the group."""


class Clients:
    """All clients of one run, on one event loop."""

    def __init__(self, namesrv: str, record: Record, rng: Random) -> None:
        self._namesrv = namesrv
        self._record = record
        self._rng = rng
        self._sending = True
        self._senders: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []
        self._payer: TransactionProducer | None = None

    def start(self) -> None:
        """Starts all clients."""
        begin = asyncio.get_running_loop().create_task
        self._senders = [
            begin(self._send_one_by_one("one")),
            begin(self._send_one_by_one("two")),
            begin(self._send_many("many")),
        ]
        self._others = [
            begin(self._pay()),
            begin(self._be_members("first")),
            begin(self._be_members("second")),
            begin(self._read_raw("leader", at_leader=True)),
            begin(self._read_raw("anybody", at_leader=False)),
            begin(self._set_offsets()),
        ]

    async def stop_sending(self) -> None:
        """Returns when every send has ended. Check-backs are still answered."""
        self._sending = False
        await asyncio.gather(*self._senders)

    async def stop(self) -> None:
        """Ends all clients."""
        for task in self._others:
            task.cancel()
        for result in await asyncio.gather(*self._others, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    def check_running(self) -> None:
        """Raises the error of a client that has ended although it should run."""
        for task in (*self._senders, *self._others):
            if task.done() and not task.cancelled():
                task.result()

    # --- producers

    def _message(self, client: str, number: int, lane: str) -> tuple[Send, Message]:
        body = f"{client} {number} ".encode() + b"." * self._rng.randrange(FILLER_MAX)
        return self._record.send(ORDERS, body, lane), Message(
            ORDERS, body, keys=f"{client}{number}"
        )

    async def _send_one_by_one(self, client: str) -> None:
        """Waits for each answer, so the order of its messages in each queue is promised."""
        number = 0
        async with Producer(self._namesrv, PRODUCER) as producer:
            while self._sending:
                sent, message = self._message(client, number, client)
                number += 1
                await self._ended([sent], producer.send(message))
                await asyncio.sleep(self._rng.uniform(0.0, 0.01))

    async def _send_many(self, client: str) -> None:
        """Has many sends in flight, some of them batches."""
        number = 0
        waiting: set[asyncio.Task[None]] = set()
        async with Producer(self._namesrv, PRODUCER) as producer:
            while self._sending or waiting:
                if self._sending and len(waiting) < IN_FLIGHT_MAX:
                    count = self._rng.choice((1, 1, self._rng.randint(2, BATCH_MAX)))
                    batch = [self._message(client, number + k, "") for k in range(count)]
                    number += count
                    messages = [message for _, message in batch]
                    call = (
                        producer.send_batch(messages) if count > 1 else producer.send(messages[0])
                    )
                    ended = self._ended([sent for sent, _ in batch], call)
                    waiting.add(asyncio.get_running_loop().create_task(ended))
                    await asyncio.sleep(self._rng.uniform(0.0, 0.02))
                else:
                    _, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")

    async def _ended(self, batch: list[Send], call: Awaitable[SendResult]) -> None:
        try:
            result = await call
        except (ClientError, CallError) as error:
            unknown = not isinstance(error, RefusedError) or outcome_unknown(error)
            for sent in batch:
                self._record.fail(sent, unknown=unknown)
            return
        for place, sent in enumerate(batch):
            queue = result.queue
            at = (queue.topic, queue.queue_id, result.queue_offset + place)
            self._record.acknowledge(sent, at)

    async def _pay(self) -> None:
        decisions = self._record.decisions
        words = {True: Outcome.COMMIT, False: Outcome.ROLLBACK, None: Outcome.UNKNOWN}

        async def check(message: ReceivedMessage) -> Outcome:
            return words[decisions[message.body]]

        number = 0
        async with TransactionProducer(self._namesrv, check, PAYER) as producer:
            while True:
                await asyncio.sleep(self._rng.uniform(0.05, 0.4))
                if self._sending:
                    await self._transaction(producer, f"payment {number} ".encode())
                    number += 1

    async def _transaction(self, producer: TransactionProducer, body: bytes) -> None:
        """Decides a transaction at once, or only when the broker asks."""
        decisions = self._record.decisions
        self._record.send(PAYMENTS, body)
        decisions[body] = None
        transaction = producer.transaction(Message(PAYMENTS, body))
        try:
            await transaction.begin()
        except (ClientError, CallError):
            decisions[body] = False
            return
        self._record.begun.add(body)
        decision = decisions[body] = self._rng.random() < 0.6
        if self._rng.random() < 0.3:
            return
        try:
            await (transaction.commit() if decision else transaction.rollback())
        except (ClientError, CallError):
            return  # the broker will ask

    # --- consumers and readers

    async def _be_members(self, name: str) -> None:
        life = 0
        while True:
            life += 1
            consumer = Consumer(
                self._namesrv,
                READERS,
                dict.fromkeys(TOPICS, "*"),
                start_from="earliest",
                config=MEMBER,
            )
            try:
                async with consumer, asyncio.timeout(self._rng.uniform(*MEMBER_SECONDS)):
                    async for batch in consumer:
                        self._given(f"{READERS}.{name}.{life}", batch)
                        consumer.acknowledge(batch.queue, batch.next_offset)
            except TimeoutError:
                continue

    def _given(self, member: str, batch: PulledBatch) -> None:
        try:
            for message in batch:
                place = (batch.queue.topic, batch.queue.queue_id, message.queue_offset)
                self._record.deliver(READERS, member, place, bytes(message.body))
        except CorruptRecordError as error:
            self._record.find(f"{member} is given a damaged record: {error}")

    async def _read_raw(self, name: str, *, at_leader: bool) -> None:
        """Reads each queue from its beginning, without a gap."""
        offsets: dict[MessageQueue, int] = {}
        async with Puller(self._namesrv, f"raw-{name}") as puller:
            while True:
                for topic in TOPICS:
                    for queue in await puller.queues(topic):
                        await self._read_on(puller, name, queue, offsets, at_leader=at_leader)
                await asyncio.sleep(self._rng.uniform(0.0, 0.1))

    async def _read_on(
        self,
        puller: Puller,
        name: str,
        queue: MessageQueue,
        offsets: dict[MessageQueue, int],
        *,
        at_leader: bool,
    ) -> None:
        offset = offsets.get(queue, 0)
        chosen = None if at_leader else self._rng
        for number, body in enumerate(await puller.pull(queue, offset, self._record, chosen)):
            self._record.read(name, (queue.topic, queue.queue_id, offset + number), body)
            offsets[queue] = offset + number + 1

    async def _set_offsets(self) -> None:
        """The offset of a group without members, which nobody else writes. Members of a group that
        shares queues out may set offsets back: one that had a queue may be late."""
        offset = end = 0
        async with Puller(self._namesrv, REGISTER) as puller:
            while True:
                await asyncio.sleep(self._rng.uniform(0.02, 0.2))
                queues = await puller.queues(ORDERS)
                if not queues:
                    continue
                if offset == end:
                    end = await puller.end(queues[0]) or end
                offset = min(offset + 1, end)
                self._record.write_offset(offset)
                if await puller.commit(queues[0], offset):
                    self._record.wrote_offset()
                known, found = await puller.committed(queues[0])
                if known:
                    self._record.read_offset(found)


class Puller:
    """Asks brokers for messages and offsets, one request at a time, and keeps nothing."""

    def __init__(self, namesrv: str, group: str) -> None:
        loop = asyncio.get_running_loop()
        rng = Random()
        self._remoting = RemotingClient(loop)
        self._routes = Routes(loop, self._remoting, [namesrv], rng)
        client_id = local_identity(rng).client_id
        self._requests = ConsumerRequests(self._remoting, READER, group, client_id)

    async def __aenter__(self) -> Puller:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._routes.close()
        await self._remoting.close()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that can be read; none while the route is unknown."""
        try:
            return list((await self._routes.get(topic)).read_queues)
        except (ClientError, CallError):
            await asyncio.sleep(0.1)
            return []

    async def pull(
        self, queue: MessageQueue, offset: int, record: Record, rng: Random | None
    ) -> list[bytes]:
        """The bodies from ``offset`` on, of the leader or (``rng``) of any broker; none where there
        is none or no answer."""
        try:
            route = await self._routes.get(queue.topic)
            address = self._routes.leader(queue)
            if rng is not None:
                address = rng.choice(sorted(route.brokers[queue.broker].values()))
            asked = self._requests.pull(address, queue, offset, Subscription(queue.topic, ALL, 0))
            answer = pull_answer(address, await asked)
        except (ClientError, CallError):
            await self._routes.recover(queue.topic, queue.broker)
            return []
        try:
            batch = list(PulledBatch(queue, answer.body, answer.next_offset))
            offsets = [message.queue_offset for message in batch]
            bodies = [bytes(message.body) for message in batch]
        except CorruptRecordError as error:
            record.find(f"{address} gives a damaged record of {queue}: {error}")
            return []
        if offsets != list(range(offset, offset + len(batch))):
            record.find(f"{address} is asked for {queue} from {offset} on and gives {offsets}")
            return []
        return bodies

    async def commit(self, queue: MessageQueue, offset: int) -> bool:
        """Commits an offset. Returns whether the leader confirmed it."""
        try:
            await self._routes.get(queue.topic)
            await self._requests.commit_offset(self._routes.leader(queue), queue, offset)
        except (ClientError, CallError):
            await self._routes.recover(queue.topic, queue.broker)
            return False
        return True

    async def committed(self, queue: MessageQueue) -> tuple[bool, int | None]:
        """Whether the leader said how far the group is, and how far."""
        try:
            await self._routes.get(queue.topic)
            offset = await self._requests.committed_offset(self._routes.leader(queue), queue)
        except (ClientError, CallError):
            await self._routes.recover(queue.topic, queue.broker)
            return False, None
        return True, offset

    async def end(self, queue: MessageQueue) -> int | None:
        """The offset of the next message, by the leader; ``None`` without an answer."""
        try:
            await self._routes.get(queue.topic)
            return await self._requests.max_offset(self._routes.leader(queue), queue)
        except (ClientError, CallError):
            await self._routes.recover(queue.topic, queue.broker)
            return None


async def read_all(namesrv: str, record: Record) -> dict[Place, bytes]:
    """All messages of all topics, each queue from offset 0 to its end.

    A queue that cannot be read through is a finding.
    """
    found: dict[Place, bytes] = {}
    loop = asyncio.get_running_loop()
    async with Puller(namesrv, "all") as puller:
        for topic in TOPICS:
            ends_at = loop.time() + READ_SECONDS
            while not (queues := await puller.queues(topic)) and loop.time() < ends_at:
                pass  # the pull waits for a moment itself
            for queue in queues:
                ends_at, offset = loop.time() + READ_SECONDS, 0
                while (end := await puller.end(queue)) is None and loop.time() < ends_at:
                    pass  # as above
                if end is None:
                    record.find(f"nobody says where {queue} ends")
                    continue
                while offset < end:
                    for body in await puller.pull(queue, offset, record, None):
                        found[topic, queue.queue_id, offset] = body
                        offset += 1
                        ends_at = loop.time() + READ_SECONDS
                    if loop.time() >= ends_at:
                        record.find(f"{queue} gives nothing from {offset} on; it ends at {end}")
                        break
    return found
