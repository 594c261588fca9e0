"""Clients that send: single messages and batches, one by one or many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from broker.client.client_identity import ClientIdentity
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError, RefusedError, outcome_unknown
from broker.client.message import MessageQueue, SendResult
from broker.client.producer.pending_send import PendingSend
from broker.client.producer.producer import Producer
from broker.client.producer.queue_selection import Target
from broker.client.producer.send_dispatcher import SendDispatcher
from broker.remoting.protocol.errors import CallError
from simulator.hosts.client_host import ClientHost
from simulator.workload.history import Content, History, Sent
from simulator.workload.message_content import content_of, message_of
from simulator.workload.name_server import NAME_SERVERS
from simulator.workload.stoppable_client import StoppableClient

DEADLINE_SECONDS = 8.0
CONFIG = ProducerConfig(
    deadline_seconds=DEADLINE_SECONDS, request_seconds=1.5, missing_topic_seconds=4.0
)
BATCH_MAX = 5
FILLER_MAX = 120


class ApacheDeliverer(SendDispatcher):
    """Sends again without asking, as Apache's clients do: only brokers recognise its retries."""

    async def _find_earlier_try(self, _delivery: PendingSend, _target: Target) -> SendResult | None:
        return None


class ApacheProducer(Producer):
    """See :class:`ApacheDeliverer`."""

    send_dispatcher_class = ApacheDeliverer


def producer_of(
    client_host: ClientHost,
    rng: Random,
    *,
    config: ProducerConfig = CONFIG,
    producer_class: type[Producer] = Producer,
) -> Producer:
    """A producer of this process, by its clock."""
    return producer_class(
        NAME_SERVERS,
        config,
        wall_clock=client_host.clock.wall_ms,
        rng=rng,
        identity=ClientIdentity(client_host.ip, client_host.boot, rng.getrandbits(32)),
    )


def note_outcome(
    history: History, batch: Sequence[Sent], answer: asyncio.Future[SendResult]
) -> None:
    """Notes the outcome of a request. Raises errors that no client should see."""
    error = answer.exception()
    if error is None:
        result = answer.result()
        for place, sent in enumerate(batch):
            history.acknowledge(sent, result.queue, result.queue_offset + place)
    elif isinstance(error, ClientError | CallError):
        unknown = not isinstance(error, RefusedError) or outcome_unknown(error)
        for sent in batch:
            history.fail(sent, f"{type(error).__name__}: {error}", unknown=unknown)
    else:
        raise error


class ProducingClient(StoppableClient):
    """``pause_max``: the longest time between two sends, in seconds.

    With ``patient`` it waits for each acknowledgement before it sends again, and sends to one queue
    after the other. Then the order of its messages in each queue is promised. Once it is stopped,
    it goes on until one more request is acknowledged. Otherwise it sends again without asking
    whether the first try was stored. It may also send ``bursts`` of requests at the same instant,
    with a pause that is as many times as long after them. ``content``: what a message of that
    number, born then, holds.
    """

    def __init__(
        self,
        topics: tuple[str, ...],
        history: History,
        rng: Random,
        *,
        pause_max: float,
        patient: bool,
        bursts: Sequence[int] = (1,),
        config: ProducerConfig = CONFIG,
        content: Callable[[int, int], Content] = content_of,
        producer_class: type[Producer] | None = None,
    ) -> None:
        self._topics = topics
        self._history = history
        self._rng = rng
        self._pause_max = pause_max
        self._patient = patient
        self._bursts = bursts
        self._config = config
        self._content = content
        self._producer_class = producer_class or (Producer if patient else ApacheProducer)
        self.stored_in_the_end = False
        """Whether a request that was sent after :meth:`stop` was acknowledged."""

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        rng = self._rng
        producer = producer_of(
            client_host,
            rng,
            config=self._config,
            producer_class=self._producer_class,
        )
        await producer.start()
        burst = 1
        while self._working:
            await asyncio.sleep(rng.uniform(0.005, burst * self._pause_max))
            if not self._working:
                break
            if self._patient:
                await self._send_patiently(client_host, producer)
                continue
            if len(self._bursts) > 1:
                burst = rng.choice(self._bursts)
            for _ in range(burst):
                self._send(client_host, producer, *self._batch(client_host))
        while self._patient and not self.stored_in_the_end:
            await asyncio.sleep(rng.uniform(0.02, self._pause_max))
            answer = await self._send_patiently(client_host, producer)
            self.stored_in_the_end = answer is not None and answer.exception() is None
        await asyncio.sleep(DEADLINE_SECONDS + 1.0)
        await producer.close()
        client_host.note("has closed its producer")

    def _batch(self, client_host: ClientHost) -> tuple[str, list[Sent]]:
        """The next request: one message, or several, of one topic."""
        rng = self._rng
        topic = rng.choice(self._topics)
        lane = f"{client_host.name}.{client_host.boot}" if self._patient else ""
        count = rng.choice((1, 1, 1, rng.randint(2, BATCH_MAX)))
        return topic, [
            self._history.send(client_host.name, rng.randrange(FILLER_MAX), lane)
            for _ in range(count)
        ]

    async def _send_patiently(
        self, client_host: ClientHost, producer: Producer
    ) -> asyncio.Future[SendResult] | None:
        topic, batch = self._batch(client_host)
        try:
            queue = self._rng.choice(await producer.queues(topic))
        except (ClientError, CallError) as error:
            self._not_sent(batch, error)
            return None
        answer = self._send(client_host, producer, topic, batch, queue)
        if answer is not None:
            await asyncio.wait([answer])
        return answer

    def _send(
        self,
        client_host: ClientHost,
        producer: Producer,
        topic: str,
        batch: list[Sent],
        queue: MessageQueue | None = None,
    ) -> asyncio.Future[SendResult] | None:
        """Sends one request; ``None`` if nothing was sent."""
        born_ms = client_host.clock.wall_ms()
        messages = [message_of(topic, sent, self._content(sent.number, born_ms)) for sent in batch]
        try:
            if len(messages) > 1:
                answer = producer.send_batch_nowait(messages, queue)
            else:
                answer = producer.send_nowait(messages[0], queue)
        except (ClientError, CallError) as error:
            self._not_sent(batch, error)
            return None
        answer.add_done_callback(partial(note_outcome, self._history, batch))
        return answer

    def _not_sent(self, batch: list[Sent], error: ClientError | CallError) -> None:
        for sent in batch:
            self._history.fail(sent, f"{type(error).__name__}: {error}", unknown=False)
