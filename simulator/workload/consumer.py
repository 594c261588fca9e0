"""Members of a consumer group: they take messages and acknowledge them."""

from __future__ import annotations

import asyncio
from random import Random

from broker.client.client_identity import ClientIdentity
from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer import Consumer
from broker.client.errors import BadAnswerError, Failure
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, ReceivedMessage
from simulator.engine.violation import Violation
from simulator.hosts.client_host import ClientHost
from simulator.workload.history import History
from simulator.workload.name_server import NAME_SERVERS
from store.errors import CorruptRecordError
from store.message.record import MessageRecord

CONFIG = ConsumerConfig(
    request_seconds=1.5,
    suspend_seconds=4.0,
    pull_seconds=6.0,
    heartbeat_seconds=5.0,
    rebalance_seconds=5.0,
    commit_seconds=1.0,
    close_seconds=2.0,
)


def records(
    client_host: ClientHost, batch: PulledBatch
) -> list[tuple[ReceivedMessage, MessageRecord]]:
    """The messages that a consumer was given. Raises :class:`Violation` for a damaged one: no
    broker may give other bytes than it has stored, even if its disk is damaged."""
    try:
        return [(message, message.record) for message in batch]
    except CorruptRecordError as error:
        raise Violation(f"{client_host.name} is given a damaged record: {error}") from error


class CheckedConsumer(Consumer):
    """Reports an answer in which a consumer finds no records, or nonsense: each consumer asks
    again, quietly.

    That is a violation, as with :func:`records`.
    """

    client_host: ClientHost

    def failed(self, address: str | None, queue: MessageQueue, error: Failure) -> None:
        """See :class:`broker.client.consumer.fetcher.Sink`."""
        super().failed(address, queue, error)
        if isinstance(error, BadAnswerError):
            found = Violation(f"{self.client_host.name} cannot read an answer: {error}")
            self.client_host.loop.call_soon(_tell, found)


def _tell(found: Violation) -> None:
    raise found


class ConsumingClient:
    """One member of the group, from the beginning of each queue on."""

    def __init__(
        self,
        group: str,
        topics: tuple[str, ...],
        history: History,
        rng: Random,
        *,
        config: ConsumerConfig = CONFIG,
    ) -> None:
        self._group = group
        self._topics = topics
        self._history = history
        self._rng = rng
        self._config = config
        self._consumer: Consumer | None = None
        self._boot = 0
        self._leaves_at = -1

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        if self._leaves_at == client_host.boot:
            return
        rng = self._rng
        name = f"{client_host.name}.{client_host.boot}"
        consumer = self._consumer = CheckedConsumer(
            NAME_SERVERS,
            self._group,
            dict.fromkeys(self._topics, "*"),
            start_from="earliest",
            config=self._config,
            wall_clock=client_host.clock.wall_ms,
            rng=rng,
            identity=ClientIdentity(client_host.ip, client_host.boot, rng.getrandbits(32)),
        )
        consumer.client_host = client_host
        self._boot = client_host.boot
        await consumer.start()
        async for batch in consumer:
            queue = batch.queue
            for message, record in records(client_host, batch):
                self._history.deliver(name, queue, message.queue_offset, record)
            client_host.note(f"has {queue.topic}/{queue.queue_id} up to {batch.next_offset}")
            consumer.acknowledge(queue, batch.next_offset)
            if rng.random() < 0.1:
                await asyncio.sleep(rng.uniform(0.0, 0.3))

    def close(self, client_host: ClientHost) -> None:
        """Leaves the group. Runs as an event of its process."""
        if self._consumer is not None and self._boot == client_host.boot:
            client_host.loop.create_task(self._consumer.close())
        else:
            self._leaves_at = client_host.boot
