"""Members of a consumer group: they take what they are given, and acknowledge it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from broker.client.config import ConsumerConfig
from broker.client.consumer import Consumer
from broker.client.errors import BadAnswerError, Failure
from broker.client.identity import ClientIdentity
from broker.client.message import MessageQueue
from simulator.station import Station
from simulator.violation import Violation
from simulator.workload.history import History
from store.errors import CorruptRecordError

CONFIG = ConsumerConfig(
    request_seconds=1.5,
    suspend_seconds=4.0,
    pull_seconds=6.0,
    heartbeat_seconds=5.0,
    rebalance_seconds=5.0,
    commit_seconds=1.0,
    close_seconds=2.0,
)


def fetch_again(station: Station, error: CorruptRecordError, may_be_damaged: bool) -> None:
    """The client noticed that a record is damaged: it ends, is started again, and fetches again.

    That passes where disks may be damaged: what is damaged is mended once it is scrubbed. Raises
    :class:`Violation` where none is: then a broker has given other bytes than it has stored.
    """
    if not may_be_damaged:
        raise Violation(
            f"{station.name} is given a damaged record, and no disk was damaged: {error}"
        ) from error
    station.give_up(f"got a damaged record: {error}")


class WatchedConsumer(Consumer):
    """Tells of an answer in which no consumer finds records, or nonsense: each asks again, quietly.

    That passes where disks may be damaged, as with :func:`fetch_again`, and is a violation where
    none is.
    """

    station: Station
    may_be_damaged: Callable[[], bool]

    def failed(self, address: str | None, queue: MessageQueue, error: Failure) -> None:
        """See :class:`broker.client.fetcher.Sink`."""
        super().failed(address, queue, error)
        if not isinstance(error, BadAnswerError):
            return
        if self.may_be_damaged():
            self.station.mark("answer to a pull that could not be read")
            return
        found = Violation(
            f"{self.station.name} cannot read an answer, and no disk was damaged: {error}"
        )
        self.station.loop.call_soon(_tell, found)


def _tell(found: Violation) -> None:
    raise found


class ConsumingClient:
    """One member of the group, from the beginning of each queue on.

    ``may_be_damaged``: whether a disk of the group was damaged in this run, so far.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        topics: tuple[str, ...],
        history: History,
        rng: Random,
        *,
        may_be_damaged: Callable[[], bool],
        config: ConsumerConfig = CONFIG,
    ) -> None:
        self._name_servers = name_servers
        self._group = group
        self._topics = topics
        self._history = history
        self._rng = rng
        self._may_be_damaged = may_be_damaged
        self._config = config
        self._consumer: Consumer | None = None
        self._boot = 0
        self._leaves_at = -1

    async def main(self, station: Station) -> None:
        """The process of the client."""
        if self._leaves_at == station.boot:
            return
        rng = self._rng
        name = f"{station.name}.{station.boot}"
        consumer = self._consumer = WatchedConsumer(
            self._name_servers,
            self._group,
            dict.fromkeys(self._topics, "*"),
            start_from="earliest",
            config=self._config,
            wall_clock=station.clock.wall_ms,
            rng=rng,
            identity=ClientIdentity(station.ip, station.boot, rng.getrandbits(32)),
        )
        consumer.station, consumer.may_be_damaged = station, self._may_be_damaged
        self._boot = station.boot
        await consumer.start()
        async for batch in consumer:
            queue = batch.queue
            try:
                found = [(message.queue_offset, bytes(message.body)) for message in batch]
            except CorruptRecordError as error:
                fetch_again(station, error, self._may_be_damaged())
                return
            for offset, body in found:
                self._history.deliver(name, (queue.topic, queue.queue_id, offset), body)
            station.note(f"has {queue.topic}/{queue.queue_id} up to {batch.next_offset}")
            consumer.acknowledge(queue, batch.next_offset)
            if rng.random() < 0.1:
                await asyncio.sleep(rng.uniform(0.0, 0.3))

    def close(self, station: Station) -> None:
        """Leaves the group in order; as an event of its process, be it the first."""
        if self._consumer is not None and self._boot == station.boot:
            station.loop.create_task(self._consumer.close())
        else:
            self._leaves_at = station.boot
