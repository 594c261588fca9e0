"""The door of delivery: HTTP and remoting are given the same, and counted the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.remoting.protocol.codes import ResponseCode
from broker.state.commands import Expire
from store.errors import OutOfRangeError
from store.log.entry_reader import EntryRange
from tests.broker.http.site import Site, running_site
from tests.broker.single_broker import SingleBroker, messages
from tests.support.virtual_network import NetworkedLoop


class Got(NamedTuple):
    """What a read from a queue brought: offsets of messages, and where to go on."""

    status: str
    offsets: list[int]
    next_offset: int


Read = Callable[[Site, int, int], Awaitable[Got]]
"""Reads queue 0 of orders: from an offset on, so many messages at most. Waits 2 s for them."""


async def over_remoting(site: Site, offset: int, count: int) -> Got:
    answer = await site.broker.pull(
        "orders", 0, offset, maxMsgNums=str(count), sysFlag="6", suspendTimeoutMillis="2000"
    )
    offsets = [message.queue_offset for message in messages(answer)] if answer.body else []
    return Got(answer.remark or "", offsets, int(str(answer.ext["nextBeginOffset"])))


async def over_http(site: Site, offset: int, count: int) -> Got:
    path = f"/topics/orders/queues/0/messages?offset={offset}&count={count}&wait_ms=2000"
    status, answer = await site.ask("GET", path)
    assert status == 200, answer
    offsets = [message["queue_offset"] for message in answer["messages"]]
    return Got(answer["status"], offsets, answer["next_offset"])


@pytest.fixture(params=[over_remoting, over_http])
def read(request: pytest.FixtureRequest) -> Read:
    wire: Read = request.param
    return wire


async def stored(broker: SingleBroker, count: int, size: int = 1) -> None:
    if broker.broker.context.machine.state.topics.get("orders") is None:
        await broker.create_topic("orders")
    for _ in range(count):
        assert (await broker.send("orders", 0, b"x" * size)).code == ResponseCode.SUCCESS


async def test_up_to_32_messages_are_256_kib_and_more_are_4_mib(site: Site, read: Read) -> None:
    await stored(site.broker, 10, 60 << 10)
    assert (await read(site, 0, 32)).offsets == [0, 1, 2, 3]
    assert (await read(site, 0, 33)).offsets == list(range(10))


async def test_each_read_is_counted_once_however_long_it_waited(site: Site, read: Read) -> None:
    stats = site.broker.broker.context.stats
    await stored(site.broker, 3)
    assert await read(site, 0, 2) == Got("FOUND", [0, 1], 2)
    assert (stats.get_messages, stats.pulls_found, stats.pulls_missed) == (2, 1, 0)
    assert await read(site, 3, 2) == Got("OFFSET_OVERFLOW_ONE", [], 3)
    assert (stats.get_messages, stats.pulls_found, stats.pulls_missed) == (2, 1, 1)
    waiting = asyncio.ensure_future(read(site, 3, 2))
    await asyncio.sleep(1)
    await stored(site.broker, 1)
    assert await waiting == Got("FOUND", [3], 4)
    assert (stats.get_messages, stats.pulls_found, stats.pulls_missed) == (3, 2, 1)
    # The second that the last one was held counts for no latency.
    fetch_seconds = site.broker.broker.context.delivery.fetch_seconds
    assert (fetch_seconds.count, fetch_seconds.counts[-8:]) == (2, [0] * 8)


async def test_nobody_waits_in_a_queue_that_lost_its_messages(site: Site, read: Read) -> None:
    """Its next message gets an offset that the reader believes to be behind."""

    await site.broker.create_topic("orders")
    began = site.broker.loop.time()
    assert await read(site, 7, 1) == Got("NO_MESSAGE_IN_QUEUE", [], 0)
    assert site.broker.loop.time() - began < 1
    assert await read(site, 0, 1) == Got("NO_MESSAGE_IN_QUEUE", [], 0)
    assert site.broker.loop.time() - began >= 2


def expired_read(first_index: int, last_index: int, max_bytes: int) -> EntryRange:
    raise OutOfRangeError("not there")


async def test_messages_that_expire_while_they_are_read_send_the_reader_to_the_beginning(
    loop: NetworkedLoop, tmp_path: Path, read: Read
) -> None:
    async with running_site(loop, tmp_path) as site:
        await stored(site.broker, 3)
    async with running_site(loop, tmp_path) as site:
        broker = site.broker
        broker.read_executor.hold()
        waiting = asyncio.ensure_future(read(site, 0, 1))
        await asyncio.sleep(0.01)
        context = broker.broker.context
        context.batcher.add_command(Expire(context.machine.applied_end))
        await asyncio.sleep(0.01)
        context.node.store.read_range = expired_read  # type: ignore[method-assign]  # a double
        broker.read_executor.release()
        assert await waiting == Got("OFFSET_TOO_SMALL", [], 3)
