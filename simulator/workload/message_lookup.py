"""A client that looks up messages as RocketMQ's console does: by key, by position, by time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol

from broker.client.errors import ClientError
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.ext_fields import ext_int
from simulator.hosts.broker_host import GROUP as BROKER
from simulator.hosts.client_host import ClientHost
from simulator.workload.client_connections import ClientConnections
from simulator.workload.stoppable_client import StoppableClient
from store.message.record import MessageRecord, decode_record, record_bounds

BY_KEY, BY_TIME, BY_POSITION = 12, 29, 33
SUCCESS, NOT_FOUND = 0, 22
MISSING = "missing"
PAUSE_SECONDS_MAX = 0.3
TIME_MAX_MS = 1 << 41


class LookupListener(Protocol):
    """Compares the answers of brokers with the log."""

    def committed(self) -> Sequence[MessageRecord]:
        """The committed records, for which a client may ask."""

    def applied(self, address: str) -> int:
        """The entry up to which the broker there has applied the log."""

    def indexed(self, address: str) -> int:
        """The entry up to which its key index must have all keys."""

    def found_by_key(
        self, topic: str, key: str, applied: int, records: Sequence[tuple[MessageRecord, bytes]]
    ) -> None:
        """The answer of a broker that had indexed that much when it was asked."""

    def found_at(self, position: int, applied: int, data: bytes | None) -> None:
        """The record at a position; None if a broker says that none begins there."""

    def found_by_time(
        self, topic: str, queue_id: int, time_ms: int, applied: int, offset: int
    ) -> None:
        """The first message of a queue that is not older than that."""


def keys_of(record: MessageRecord) -> list[str]:
    """Its keys, and the key of its producer."""
    properties = record.property_map
    return [*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY", "")]


class MessageLookupClient(StoppableClient):
    """Asks any broker about committed messages, one thing at a time."""

    def __init__(
        self,
        topic: str,
        known: LookupListener,
        rng: Random,
        *,
        pause_max: float = PAUSE_SECONDS_MAX,
    ) -> None:
        self._topic = topic
        self._known = known
        self._rng = rng
        self._pause_max = pause_max

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        rng, connections = self._rng, ClientConnections(client_host, self._rng)
        routes = connections.routes
        while self._working:
            await asyncio.sleep(rng.uniform(0.02, self._pause_max))
            if not self._known.committed():
                continue
            ask = rng.choice((self._by_key, self._by_time, self._by_position))
            try:
                route = await routes.get(self._topic)
                address = rng.choice(sorted(route.brokers[BROKER].values()))
                await ask(connections, address)
            except (CallError, ClientError, KeyError) as error:
                client_host.note(f"finds nothing: {error}")
                await routes.recover(self._topic, BROKER)
        await connections.close()

    async def _by_key(self, connections: ClientConnections, address: str) -> None:
        record = self._rng.choice(self._known.committed())
        key = self._rng.choice([key for key in keys_of(record) if key])
        indexed = self._known.indexed(address)
        ext = {
            "topic": record.topic,
            "key": key,
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str(TIME_MAX_MS),
        }
        answer = await connections.ask(address, BY_KEY, ext)
        if answer.code in {SUCCESS, NOT_FOUND}:
            body = answer.body if answer.code == SUCCESS else b""
            found = [
                (decode_record(body, start), bytes(body[start:end]))
                for start, end in record_bounds(body)
            ]
            indexed = min(indexed, self._known.indexed(address))  # by the process that answered
            self._known.found_by_key(record.topic, key, indexed, found)
            mark = "message found by key" if found else "nothing found by key"
            connections.host.coverage_mark(mark)

    async def _by_position(self, connections: ClientConnections, address: str) -> None:
        position = self._rng.choice(self._known.committed()).position
        applied = self._known.applied(address)
        ext = {"offset": str(position)}
        answer = await connections.ask(address, BY_POSITION, ext)
        applied = min(applied, self._known.applied(address))  # by the process that answered
        if answer.code == SUCCESS:
            self._known.found_at(position, applied, bytes(answer.body))
            connections.host.coverage_mark("message found by position")
        elif MISSING in (answer.ext or {}):
            self._known.found_at(position, applied, None)

    async def _by_time(self, connections: ClientConnections, address: str) -> None:
        record = self._rng.choice(self._known.committed())
        time_ms = record.store_timestamp + self._rng.choice((-1, 0, 0, 1))
        applied = self._known.applied(address)
        ext = {
            "topic": record.topic,
            "queueId": str(record.queue_id),
            "timestamp": str(time_ms),
            "boundaryType": "lower",
        }
        answer = await connections.ask(address, BY_TIME, ext)
        applied = min(applied, self._known.applied(address))
        if answer.code == SUCCESS:
            offset = ext_int(answer, "offset")
            self._known.found_by_time(record.topic, record.queue_id, time_ms, applied, offset)
            connections.host.coverage_mark("message found by time")
