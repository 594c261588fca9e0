"""When a client looks a route up again while no broker leads."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.errors import ClosedError, TopicNotFoundError
from broker.client.message import MessageQueue
from broker.client.route.route_cache import BACKOFF_MIN_SECONDS
from tests.broker.client.route.routes_of_a_cluster import start
from tests.support.virtual_network import NetworkedLoop


async def test_waits_grow_with_the_outage_and_stay_bounded(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    await routes.get("T")
    waits: list[float] = []
    began = loop.time()
    while loop.time() - began < 20:
        before = loop.time()
        await routes.recover("T", "broker-a")
        waits.append(loop.time() - before)
    assert waits[0] == 0
    assert waits[1] < 0.03
    assert max(waits) <= 0.5 * 1.25
    assert all(wait >= 0.3 for wait in waits[-5:])
    routes.close()
    await cluster.close()


async def test_topics_of_one_outage_are_looked_up_in_turn(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    cluster.topics["U"] = 2
    for _ in range(20):
        await asyncio.gather(*(routes.recover(topic, "broker-a") for topic in "TU"))
    assert len(cluster.lookups) == 20 + 1  # the first failure looks its own topic up by itself
    assert abs(cluster.lookups.count("T") - cluster.lookups.count("U")) <= 3
    routes.close()
    await cluster.close()


async def test_a_new_leader_is_found_for_all_topics_at_once(loop: NetworkedLoop) -> None:
    cluster, broker, routes = await start(loop)
    cluster.topics["U"] = 2
    for topic in "TU":
        await routes.get(topic)
    for _ in range(20):
        await asyncio.gather(*(routes.recover(topic, "broker-a") for topic in "TU"))
    new = await cluster.fail_over(broker)
    cluster.lookups.clear()
    await asyncio.gather(*(routes.recover(topic, "broker-a") for topic in "TU"))
    assert sorted(cluster.lookups) == ["T", "U"]
    for topic in "TU":
        assert routes.leader(MessageQueue(topic, "broker-a", 0)) == new.address
    routes.close()
    await cluster.close()


async def test_a_topic_that_was_just_not_found_is_not_asked_for_again_at_once(
    loop: NetworkedLoop,
) -> None:
    cluster, _, routes = await start(loop)
    for _ in range(5):
        asked = len(cluster.lookups)
        await routes.recover("U", "U")
        with pytest.raises(TopicNotFoundError):
            await routes.get("U")
        assert len(cluster.lookups) == asked + 1
    cluster.topics["U"] = 1
    await asyncio.sleep(BACKOFF_MIN_SECONDS)
    assert (await routes.get("U")).leaders()
    routes.close()
    await cluster.close()


async def test_who_needs_a_leader_sleeps_until_there_is_one(loop: NetworkedLoop) -> None:
    cluster, broker, routes = await start(loop)
    await routes.get("T")
    topics = dict(cluster.topics)
    cluster.topics.clear()
    with pytest.raises(TopicNotFoundError):
        await routes.refresh("T")
    patient = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    given_up = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    for _ in range(20):
        await routes.recover("T", "broker-a")  # who does not need one is told of each look-up
        given_up.cancel()
    assert not patient.done()
    cluster.topics.update(topics)
    async with asyncio.timeout(1):
        await patient
    assert routes.leader(MessageQueue("T", "broker-a", 0)) == broker.address
    routes.close()
    await cluster.close()


async def test_who_sleeps_without_a_leader_keeps_the_look_ups_going(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    await routes.get("T")
    topics = dict(cluster.topics)
    cluster.topics.clear()
    with pytest.raises(TopicNotFoundError):
        await routes.refresh("T")
    asked = len(cluster.lookups)
    waiting = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    await asyncio.sleep(10)
    assert 20 < len(cluster.lookups) - asked < 80
    cluster.topics.update(topics)
    async with asyncio.timeout(1):
        await waiting
    asked = len(cluster.lookups)
    await asyncio.sleep(10)
    assert len(cluster.lookups) == asked
    waiting = asyncio.ensure_future(routes.recover("T", "broker-a", until_led=True))
    cluster.topics.clear()
    await asyncio.sleep(5)
    assert not waiting.done()
    routes.close()
    with pytest.raises(ClosedError):
        await waiting
    await cluster.close()


async def test_after_quiet_times_a_failure_is_a_new_outage(loop: NetworkedLoop) -> None:
    cluster, _, routes = await start(loop)
    for _ in range(20):
        await routes.recover("T", "broker-a")
    await asyncio.sleep(1)
    before = loop.time()
    await routes.recover("T", "broker-a")
    assert loop.time() == before
    routes.close()
    await cluster.close()
