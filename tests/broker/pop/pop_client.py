"""A member of a group that receives by POP. It calls the broker without a wire."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.delivery.message_filter import message_filter
from broker.filter.subscription import ALL, TAG_TYPE
from broker.pop.pop_request import PoppedMessage, PopRequest, PopResult, PopStatus, ReceiptStatus
from broker.state.commands import Command
from dledger.errors import ProposeError
from store.message.record import decode_record
from tests.broker.single_broker import SingleBroker

OK, EXPIRED, INVALID = ReceiptStatus.OK, ReceiptStatus.EXPIRED, ReceiptStatus.INVALID
INVISIBLE_MS = 10_000


class Member:
    """Receives from one topic, by default from queue 0."""

    def __init__(self, broker: SingleBroker, group: str = "g", topic: str = "orders") -> None:
        self.broker = broker
        self.pop = broker.broker.context.pop
        self.group = group
        self.topic = topic

    async def result(
        self,
        count: int = 32,
        *,
        queue: int | None = 0,
        hold: float = 0.0,
        tags: str = ALL,
        kind: str = TAG_TYPE,
        invisible_ms: int = INVISIBLE_MS,
        **changed: Any,
    ) -> PopResult:
        deadline_ms = int((self.broker.loop.time() + hold) * 1000) if hold else 0
        wanted = message_filter(self.broker.broker.context.settings, kind, tags)
        request = PopRequest(
            self.group, self.topic, queue, count, invisible_ms, deadline_ms, wanted
        )
        return await self.pop.receive(request._replace(**changed))

    async def receive(self, count: int = 32, **changed: Any) -> tuple[PoppedMessage, ...]:
        result = await self.result(count, **changed)
        assert (result.status is PopStatus.FOUND) == bool(result.messages)
        return result.messages

    async def bodies(self, count: int = 32, **changed: Any) -> list[bytes]:
        return [decode_record(each.record).body for each in await self.receive(count, **changed)]

    async def ack(self, *messages: PoppedMessage | str) -> list[ReceiptStatus]:
        handles = [each if isinstance(each, str) else each.receipt_handle for each in messages]
        return [each.status for each in await self.pop.ack(self.group, self.topic, handles)]

    @property
    def offset(self) -> int | None:
        """The committed offset that 4.x tools see."""
        state = self.broker.broker.context.machine.state
        return state.offset(self.group, self.topic, 0)


async def sent(broker: SingleBroker, count: int, *, tags: str = "", group: str = "") -> None:
    """Messages b"0", b"1" and so on, of queue 0."""
    context = broker.broker.context
    if "orders" not in context.machine.state.topics:
        await broker.create_topic("orders")
    properties = (f"TAGS\x01{tags}\x02" if tags else "") + (
        f"__SHARDINGKEY\x01{group}\x02" if group else ""
    )
    first = context.machine.end_offset("orders", 0)
    for number in range(first, first + count):
        assert (await broker.send("orders", 0, b"%d" % number, properties)).code == 0


async def committed(broker: SingleBroker, *commands: Command) -> None:
    done: asyncio.Future[ProposeError | None] = broker.loop.create_future()
    broker.broker.context.batcher.add_in_one_entry((), commands, done.set_result)
    assert await done is None
