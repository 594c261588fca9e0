"""Clients that send requests, and clients that reply.

A responder takes only a part of the questions, by an SQL92 expression over the properties.
"""

from __future__ import annotations

import asyncio
from random import Random

from broker.client.client_identity import ClientIdentity
from broker.client.consumer.consumer import Consumer
from broker.client.consumer.message_selector import Sql
from broker.client.errors import ClientError
from broker.client.producer.producer import Producer
from broker.client.received_message import ReceivedMessage
from broker.remoting.protocol.errors import CallError
from simulator.engine.violation import Violation
from simulator.hosts.client_host import ClientHost
from simulator.workload.consumer import CONFIG as CONSUMER_CONFIG
from simulator.workload.consumer import CheckedConsumer, records
from simulator.workload.history import History, number_of
from simulator.workload.message_content import content_of, message_of
from simulator.workload.name_server import NAME_SERVERS
from simulator.workload.producer import CONFIG, producer_of
from simulator.workload.stoppable_client import StoppableClient

SIDES = 4
WANTED = Sql("side BETWEEN 1 AND 2 AND kind = 'question'")
TIMEOUT_SECONDS = 2.0
PAUSE_MAX = 0.3


def side_of(number: int) -> int:
    """The properties of the question."""
    return number % SIDES


def is_wanted(number: int) -> bool:
    """Whether a client answers this question, as ``WANTED`` says."""
    return side_of(number) in (1, 2)


def answer_to(body: bytes) -> bytes:
    """The right answer."""
    return b"answer to " + body


class RequestingClient(StoppableClient):
    """Asks one question at a time, and waits for the answer, or until no answer can come.

    Once it is stopped, it goes on until one more question is answered.
    """

    def __init__(
        self,
        topic: str,
        history: History,
        rng: Random,
        *,
        pause_max: float = PAUSE_MAX,
    ) -> None:
        self._topic = topic
        self._history = history
        self._rng = rng
        self._pause_max = pause_max
        self.answered_in_the_end = False
        """Whether a question that was asked after :meth:`stop` was answered."""

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        rng = self._rng
        producer = producer_of(client_host, rng)
        await producer.start()
        while not self.answered_in_the_end:
            await asyncio.sleep(rng.uniform(0.02, self._pause_max))
            last = not self._working
            answered = await self._ask(client_host, producer)
            self.answered_in_the_end = last and answered
        await producer.close()

    async def _ask(self, client_host: ClientHost, producer: Producer) -> bool:
        sent = self._history.send(client_host.name, self._rng.randrange(50))
        number = sent.number
        content = content_of(number, client_host.clock.wall_ms())
        sides = {"side": str(side_of(number)), "kind": "question"}
        content = content._replace(properties={**content.properties, **sides})
        message = message_of(self._topic, sent, content)
        try:
            reply = await producer.request(message, TIMEOUT_SECONDS)
        except (ClientError, CallError) as error:
            # It is unknown whether the question is stored: the client waits only for its answer.
            self._history.fail(sent, f"{type(error).__name__}: {error}", unknown=True)
            return False
        if bytes(reply.body) != answer_to(sent.body) or not is_wanted(number):
            raise Violation(f"question {number} is answered with {bytes(reply.body)!r}")
        self._history.reply(sent)
        client_host.coverage_mark("request answered")
        return True


class ReplyingClient:
    """One member of the group that answers."""

    def __init__(
        self,
        group: str,
        topic: str,
        history: History,
        rng: Random,
    ) -> None:
        self._group = group
        self._topic = topic
        self._history = history
        self._rng = rng
        self._consumer: Consumer | None = None
        self._boot = 0

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        rng = self._rng
        name = f"{client_host.name}.{client_host.boot}"
        clock = client_host.clock.wall_ms
        identity = ClientIdentity(client_host.ip, client_host.boot, rng.getrandbits(32))
        consumer = self._consumer = CheckedConsumer(
            NAME_SERVERS,
            self._group,
            {self._topic: WANTED},
            start_from="earliest",
            config=CONSUMER_CONFIG,
            wall_clock=clock,
            rng=rng,
            identity=identity,
        )
        replier = Producer(NAME_SERVERS, CONFIG, wall_clock=clock, rng=rng, identity=identity)
        consumer.client_host = client_host
        self._boot = client_host.boot
        await consumer.start()
        await replier.start()
        async for batch in consumer:
            queue = batch.queue
            found = records(client_host, batch)
            for message, record in found:
                self._history.deliver(name, queue, message.queue_offset, record)
            client_host.note(f"has {queue.topic}/{queue.queue_id} up to {batch.next_offset}")
            consumer.acknowledge(queue, batch.next_offset)
            for message, record in found:
                await self._answer(client_host, replier, message, record.body)

    def close(self, client_host: ClientHost) -> None:
        """Leaves the group. Runs as an event of its process."""
        if self._consumer is not None and self._boot == client_host.boot:
            client_host.loop.create_task(self._consumer.close())

    async def _answer(
        self, client_host: ClientHost, replier: Producer, message: ReceivedMessage, body: bytes
    ) -> None:
        try:
            await replier.reply(message, answer_to(body))
            client_host.note(f"has answered {number_of(body)}")
        except (ClientError, CallError) as error:
            client_host.note(f"{type(error).__name__}: {error}")
