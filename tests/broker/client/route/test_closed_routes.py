"""Who waits for a route is told when the client is closed."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.client.errors import ClosedError
from broker.client.route.route_cache import OUTAGE_OVER_SECONDS, Routes
from broker.remoting.client import RemotingClient
from tests.broker.client.route.routes_of_a_cluster import start
from tests.support.virtual_network import NetworkedLoop


async def test_closing_tells_who_waits_for_the_look_up_of_another_topic(
    loop: NetworkedLoop,
) -> None:
    loop.unreachable.add(9999)
    slow = Routes(loop, RemotingClient(loop), ["10.0.0.1:9999"], Random(1))
    early = asyncio.ensure_future(slow.recover("T", "broker-a"))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(slow.recover(topic, "broker-a")) for topic in "TU"]
    await asyncio.sleep(0.1)
    slow.close()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(early, *waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 3


async def test_closing_tells_who_waits_that_it_is_closed_and_cancels_nobody(
    loop: NetworkedLoop,
) -> None:
    cluster, _, routes = await start(loop)
    await routes.get("T")
    for _ in range(20):
        await routes.recover("T", "broker-a")
    loop.unreachable.add(9999)
    slow = Routes(loop, RemotingClient(loop), ["10.0.0.1:9999"], Random(1))
    waiting = [
        asyncio.ensure_future(each)
        for each in (
            routes.recover("T", "broker-a"),
            slow.get("T"),
            slow.recover("T", "broker-a"),
        )
    ]
    await asyncio.sleep(0.01)
    routes.close()
    slow.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 3
    for late in (routes.recover("T", "broker-a"), routes.refresh("T")):
        with pytest.raises(ClosedError):
            await late
    await cluster.close()


async def test_closing_finds_who_waits_though_another_outage_might_have_begun(
    loop: NetworkedLoop,
) -> None:
    cluster, _, routes = await start(loop)
    await routes.recover("T", "broker-a")
    early = asyncio.ensure_future(routes.recover("T", "broker-a"))
    await asyncio.sleep(0)
    loop.stall(2 * OUTAGE_OVER_SECONDS)  # the end of the wait comes late
    late = asyncio.ensure_future(routes.recover("T", "broker-a"))
    await asyncio.sleep(0)
    routes.close()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(early, late, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 2
    await cluster.close()


async def test_a_wait_that_ends_while_the_client_is_being_closed_is_told_so(
    loop: NetworkedLoop,
) -> None:
    loop.unreachable.add(9999)
    slow = Routes(loop, RemotingClient(loop), ["10.0.0.1:9999"], Random(1))
    waiting: list[asyncio.Future[None]] = []
    for _ in range(2):  # one for the look-up, one for the next
        waiting.append(asyncio.ensure_future(slow.recover("T", "broker-a")))
        await asyncio.sleep(0)
    slow.close()
    loop.stall(1)
    async with asyncio.timeout(10):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ClosedError] * 2
