"""Members of groups that receive by POP, as RocketMQ 5's remoting clients do.

Each asks any broker: a follower forwards. It acknowledges, asks for more time, or leaves a message
to be received again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from broker.client.errors import ClientError
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from broker.topics_and_groups import GroupConfig
from simulator.hosts.broker_host import GROUP as BROKER
from simulator.hosts.client_host import ClientHost
from simulator.workload.client_connections import REQUEST_SECONDS, ClientConnections
from simulator.workload.stoppable_client import StoppableClient
from store.message.record import MessageRecord, decode_record, record_bounds

POP, ACK, CHANGE, CREATE_GROUP = 200050, 200051, 200053, 200
SUCCESS = 0
POLL_SECONDS, POP_SECONDS = 1.0, 3.0
PAUSE_SECONDS_MAX = 0.25
INVISIBLE_MS = (300, 800, 2000)
RETRIES_MAX = 2
"""Retries of the groups: a message is received at most three times."""


class Receipt(NamedTuple):
    """One delivery of a message to a member of a group."""

    group: str
    queue_id: int
    offset: int
    start: int
    pop_ms: int
    invisible_ms: int
    tag: int

    @property
    def visible_ms(self) -> int:
        return self.pop_ms + self.invisible_ms

    @property
    def handle(self) -> str:
        times = f"{self.start} {self.pop_ms} {self.invisible_ms} {self.tag}"
        return f"{times} 0 {BROKER} {self.queue_id} {self.offset}"


class PopListener(Protocol):
    """Gets what members do, and the answers."""

    def was_given(self, member: str, receipt: Receipt, record: MessageRecord) -> None:
        """An answer had this message."""

    def asks(self, receipt: Receipt) -> None:
        """A member is about to acknowledge a delivery."""

    def was_acknowledged(self, member: str, receipt: Receipt) -> None:
        """The broker confirmed the acknowledgement."""


@dataclass(frozen=True, slots=True)
class PopSettings:
    """One member's group and order."""

    group: str
    fifo: bool
    topic: str
    pause_max: float = PAUSE_SECONDS_MAX


class PopMember(StoppableClient):
    """One member of a group."""

    def __init__(self, settings: PopSettings, listener: PopListener, rng: Random) -> None:
        self._settings = settings
        self._listener = listener
        self._rng = rng
        self._hurries = False

    def hurry(self) -> None:
        """Acknowledges every message from now on."""
        self._hurries = True

    async def main(self, client_host: ClientHost) -> None:
        """The process of the member."""
        loop, rng, settings = asyncio.get_running_loop(), self._rng, self._settings
        connections = ClientConnections(client_host, rng)
        routes, requests = connections.routes, _Requests(connections, settings)
        is_made = False
        while self._working:
            await asyncio.sleep(rng.uniform(0.01, settings.pause_max))
            try:
                route = await routes.get(settings.topic)
                address = rng.choice(sorted(route.brokers[BROKER].values()))
                if not is_made:
                    is_made = (await requests.make_group(address)).code == SUCCESS
                    continue
                answer = await requests.pop(address, rng)
                if answer.code == SUCCESS:
                    for receipt, record in received(settings.group, answer):
                        self._listener.was_given(client_host.name, receipt, record)
                        task = self._consume(client_host, requests, address, receipt)
                        loop.create_task(task).add_done_callback(lambda task: task.result())
            except (CallError, ClientError, KeyError) as error:
                client_host.note(f"receives nothing: {error}")
                await routes.recover(settings.topic, BROKER)
        await asyncio.sleep(2 * REQUEST_SECONDS)
        await connections.close()

    async def _consume(
        self, client_host: ClientHost, requests: _Requests, address: str, receipt: Receipt
    ) -> None:
        rng = self._rng
        try:
            if not self._hurries:
                if rng.random() < 0.2:
                    return
                await asyncio.sleep(rng.uniform(0, 1.2) * receipt.invisible_ms / 1000)
                if rng.random() < 0.2:
                    changed = await requests.change(address, receipt, rng.choice((0, 500, 1500)))
                    if changed is None or changed.invisible_ms == 0:
                        return
                    client_host.coverage_mark("POP: invisible time changed")
                    receipt = changed
            self._listener.asks(receipt)
            answer = await requests.ack(address, receipt)
        except CallError as error:
            client_host.note(f"acknowledges nothing: {error}")
            return
        if answer.code == SUCCESS:
            self._listener.was_acknowledged(client_host.name, receipt)
        else:
            client_host.note(f"{receipt.handle}: {answer.remark}")


class _Requests:
    def __init__(self, connections: ClientConnections, settings: PopSettings) -> None:
        self._connections = connections
        self._settings = settings

    async def make_group(self, address: str) -> Frame:
        group = GroupConfig(self._settings.group, retry_max_times=RETRIES_MAX)
        body = json.dumps(group.as_json()).encode()
        return await self._ask(address, CREATE_GROUP, {}, body)

    async def pop(self, address: str, rng: Random) -> Frame:
        ext = {
            "consumerGroup": self._settings.group,
            "topic": self._settings.topic,
            "queueId": str(rng.choice((-1, -1, 0))),
            "maxMsgNums": str(rng.choice((1, 2, 8))),
            "invisibleTime": str(rng.choice(INVISIBLE_MS)),
            "pollTime": rng.choice(("0", str(int(POLL_SECONDS * 1000)))),
            "bornTime": "0",
            "initMode": "0",
            "order": "true" if self._settings.fifo else "false",
        }
        remoting = self._connections.remoting
        return await remoting.invoke(address, POP, ext, timeout=POP_SECONDS)

    async def ack(self, address: str, receipt: Receipt) -> Frame:
        return await self._ask(address, ACK, self._fields(receipt))

    async def change(self, address: str, receipt: Receipt, invisible_ms: int) -> Receipt | None:
        """Changes the invisible time. Returns the new receipt, if there is one."""
        ext = {**self._fields(receipt), "invisibleTime": str(invisible_ms)}
        answer = await self._ask(address, CHANGE, ext)
        if answer.code != SUCCESS:
            return None
        pop_ms, given_ms, tag = (
            int(str(answer.ext[name])) for name in ("popTime", "invisibleTime", "reviveQid")
        )
        return receipt._replace(pop_ms=pop_ms, invisible_ms=given_ms, tag=tag)

    def _fields(self, receipt: Receipt) -> Mapping[str, str]:
        return {
            "consumerGroup": receipt.group,
            "topic": self._settings.topic,
            "queueId": str(receipt.queue_id),
            "extraInfo": receipt.handle,
            "offset": str(receipt.offset),
        }

    async def _ask(
        self, address: str, code: int, ext: Mapping[str, str], body: bytes = b""
    ) -> Frame:
        return await self._connections.ask(address, code, ext, (body,))


def received(group: str, answer: Frame) -> list[tuple[Receipt, MessageRecord]]:
    """The messages of an answer, with receipts made as Java's client does it."""
    ext = {name: str(value) for name, value in answer.ext.items()}
    starts = dict(each.split(" ")[1:] for each in ext["startOffsetInfo"].split(";"))
    pop_ms, invisible_ms, tag = (
        int(ext[name]) for name in ("popTime", "invisibleTime", "reviveQid")
    )
    body = answer.body
    records = [decode_record(body, start) for start, _ in record_bounds(body)]
    return [
        (
            Receipt(
                group,
                each.queue_id,
                each.queue_offset,
                int(starts[str(each.queue_id)]),
                pop_ms,
                invisible_ms,
                tag,
            ),
            each,
        )
        for each in records
    ]
