"""The load that the worker makes, against brokers in memory."""

from __future__ import annotations

import asyncio
import time
from random import Random

import pytest

from broker.bench import steady
from broker.bench.failover_probe import Probe
from broker.bench.held_connections import HeldConnections
from broker.bench.jobs import ConnectionsJob, FillJob, LoadShape, ProbeJob, ReplayJob
from broker.bench.produce import ClosedLoop, fill
from broker.bench.replay import replay
from broker.bench.steady import FallsBehindError, OpenLoop
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError, DeadlineError
from broker.client.producer.producer import Producer
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.client.fake_cluster import NAME_SERVER, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop

TOPIC = "T"


async def start(loop: NetworkedLoop) -> tuple[Cluster, Broker, Producer]:
    cluster = Cluster(loop)
    cluster.topics[TOPIC] = 4
    (broker,) = await cluster.start()
    producer = Producer(NAME_SERVER, ProducerConfig(deadline_seconds=5.0), rng=Random(1))
    await producer.queues(TOPIC)
    return cluster, broker, producer


async def stop(cluster: Cluster, producer: Producer) -> None:
    await producer.close()
    await cluster.close()


@pytest.mark.parametrize(("batch", "in_flight"), [(1, 1), (1, 16), (8, 4)])
async def test_so_many_requests_are_under_way_and_no_more(
    loop: NetworkedLoop, batch: int, in_flight: int
) -> None:
    cluster, broker, producer = await start(loop)
    broker.mute = True
    load = ClosedLoop(producer, (TOPIC,), LoadShape(batch, in_flight), b"x")
    running = asyncio.ensure_future(load.run_count(batch * 100))
    await asyncio.sleep(1)
    assert len(broker.requests) == in_flight
    running.cancel()
    await stop(cluster, producer)


async def test_a_loop_sends_as_many_as_it_is_told(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    load = ClosedLoop(producer, (TOPIC,), LoadShape(1, 3), b"x")
    assert await load.run_count(10) == 10
    assert broker.count(RequestCode.SEND_MESSAGE_V2) == 10
    assert len(load.latencies) == 10
    assert await load.run_count(5) == 5
    await stop(cluster, producer)


async def test_a_loop_ends_when_its_time_is_over(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    load = ClosedLoop(producer, (TOPIC,), LoadShape(1, 3), b"x")
    began = time.perf_counter()
    acknowledged = await load.run(0.05)
    assert 0.05 <= time.perf_counter() - began < 5
    assert acknowledged == broker.count(RequestCode.SEND_MESSAGE_V2) > 0
    await stop(cluster, producer)


async def test_a_loop_that_gets_no_processor_until_its_time_is_over_sends_once(
    loop: NetworkedLoop,
) -> None:
    cluster, _, producer = await start(loop)
    load = ClosedLoop(producer, (TOPIC,), LoadShape(1, 3), b"x")
    assert await load.run(0.0) == 1
    assert len(load.latencies) == 1
    await stop(cluster, producer)


async def test_a_refusal_ends_the_loop(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    broker.refusals.append((ResponseCode.MESSAGE_ILLEGAL, "no"))
    with pytest.raises(ClientError):
        await ClosedLoop(producer, (TOPIC,), LoadShape(1, 3), b"x").run_count(10)
    await stop(cluster, producer)


async def test_what_was_filled_is_replayed_whole(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop)
    await fill(producer, FillJob((TOPIC,), 10, 1024, LoadShape(128, 4)), Random(1))
    rounds = await replay(NAME_SERVER, ReplayJob(TOPIC, 1024, 2, ()))
    assert [each.messages for each in rounds] == [1024 - 256, 1024 - 256]
    await stop(cluster, producer)


async def test_topics_are_filled_in_turn(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    cluster.topics["U"] = 2
    await fill(producer, FillJob((TOPIC, "U"), 10, 12, LoadShape(1, 3)), Random(1))
    stored = dict.fromkeys((TOPIC, "U"), 0)
    for (topic, _), messages in broker.group.queues.items():
        stored[topic] += len(messages)
    assert stored == {TOPIC: 6, "U": 6}
    await stop(cluster, producer)


async def test_readers_are_groups_of_their_own_and_pulls_ask_for_what_they_are_told(
    loop: NetworkedLoop,
) -> None:
    cluster, broker, producer = await start(loop)
    await fill(producer, FillJob((TOPIC,), 10, 1024, LoadShape(128, 4)), Random(1))
    (one,) = await replay(NAME_SERVER, ReplayJob(TOPIC, 1024, 1, (), readers=3, at_once=32))
    assert one.messages == 3 * (1024 - 32)
    pulls = [each.ext for each in broker.requests if each.code == RequestCode.PULL_MESSAGE]
    assert {pull["maxMsgNums"] for pull in pulls} == {"32"}
    assert len({pull["consumerGroup"] for pull in pulls}) == 3
    await stop(cluster, producer)


async def test_half_of_the_connections_wait_in_a_pull(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    async with HeldConnections() as connections:
        for count in (250, 10, 0):
            before = broker.count(RequestCode.PULL_MESSAGE)
            await connections.hold(ConnectionsJob(broker.address, TOPIC, count))
            await asyncio.sleep(1)
            assert broker.count(RequestCode.PULL_MESSAGE) - before == count // 2
    await stop(cluster, producer)


async def test_a_probe_tells_of_messages_sent_after_the_moment(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    probe = Probe(producer, ProbeJob(TOPIC, 10), Random(1))
    moment = time.perf_counter()
    assert await probe.first_after(moment) > moment
    await cluster.fail_over(broker)
    moment = time.perf_counter()
    assert await probe.first_after(moment) > moment
    await probe.stop()
    await stop(cluster, producer)


async def test_a_probe_that_gives_up_says_so(loop: NetworkedLoop) -> None:
    cluster, broker, producer = await start(loop)
    probe = Probe(producer, ProbeJob(TOPIC, 10), Random(1))
    await broker.kill()
    with pytest.raises(DeadlineError):
        await probe.first_after(time.perf_counter())
    with pytest.raises(DeadlineError):
        await probe.first_after(time.perf_counter())
    await stop(cluster, producer)


@pytest.mark.parametrize("pause", [0.0, 0.5])
async def test_a_steady_load_counts_from_when_a_message_was_due(
    loop: NetworkedLoop, pause: float
) -> None:
    cluster, broker, producer = await start(loop)
    load = OpenLoop(producer, (TOPIC,), b"x", 200.0, loop.time)
    running = asyncio.ensure_future(load.run(2.0))
    await asyncio.sleep(1.0)
    loop.stall(pause)
    await running
    assert broker.count(RequestCode.SEND_MESSAGE_V2) == len(load.latencies) == 400
    assert pause <= max(load.latencies) < pause + 0.1
    late = sum(latency > 0.1 for latency in load.latencies)
    assert late == pytest.approx(200 * max(pause - 0.1, 0), abs=2)
    await stop(cluster, producer)


async def test_a_steady_load_that_is_not_taken_ends(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "BEHIND_SECONDS_MAX", 0.5)
    cluster, broker, producer = await start(loop)
    broker.mute = True
    load = OpenLoop(producer, (TOPIC,), b"x", 100.0, loop.time)
    with pytest.raises(FallsBehindError, match=r"5. messages are not acknowledged"):
        await load.run(10.0)
    await stop(cluster, producer)
