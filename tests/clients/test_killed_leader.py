"""Every way to consume, by clients written by others, while the leader is killed under them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.client import Message, Producer
from tests.clients.consumer_processes import members
from tests.clients.test_real_clients import cpp_command, needs_linux_wheel, running
from tests.cluster.running_cluster import RunningCluster, start_cluster

BEFORE = range(20)
AFTER = range(20, 80)
QUEUES = 4
TAGS = ("red", "green", "blue")


def tag_of(number: int) -> str:
    return TAGS[number % len(TAGS)]


def send(
    cluster: RunningCluster, topic: str, numbers: range, between: Callable[[], None] | None = None
) -> None:
    """Sends each number to the queue of its tag; half way ``between`` is called."""

    async def run() -> None:
        async with Producer(cluster.namesrv) as producer:
            for number in numbers:
                if between is not None and number == numbers[len(numbers) // 2]:
                    await asyncio.to_thread(between)
                properties = {"number": str(number)}
                body = str(number).encode()
                message = Message(topic, body, tags=tag_of(number), properties=properties)
                await producer.send_by_key(message, tag_of(number))

    asyncio.run(run())


def kill_leader(cluster: RunningCluster) -> None:
    killed = cluster.leader()
    cluster.kill(killed)
    cluster.start(killed)


@pytest.fixture
def forgetful_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Its memory holds nothing, by its own reckoning: new groups begin where they like, and who
    has not read the newest message is sent to a follower."""
    running = start_cluster(tmp_path / "data", follower_reads_percent=0)
    yield running
    running.stop()


def test_filters_broadcasts_beginnings_and_follower_reads_outlive_a_killed_leader(
    forgetful_cluster: RunningCluster,
) -> None:
    """What comes again after the kill is allowed to: offsets are committed now and then."""
    cluster = forgetful_cluster
    cluster.dledger("topic", "create", "mixed", "--queues", str(QUEUES))
    send(cluster, "mixed", BEFORE)
    time.sleep(1.1)  # ali-ons tells a time in whole seconds
    began = time.strftime("%Y%m%d%H%M%S")
    selector = {
        "expressionType": "SQL92",
        "subString": "number BETWEEN 10 AND 59 AND TAGS <> 'blue'",
    }
    everything = range(AFTER.stop)
    with (
        members(cluster, "mixed", "by-tag") as join_by_tag,
        members(cluster, "mixed", "by-property") as join_by_property,
        members(cluster, "mixed", "listeners") as join_broadcast,
        members(cluster, "mixed", "late") as join_late,
    ):
        wanted = {
            join_by_tag(filter="red || blue"): {n for n in everything if tag_of(n) != "green"},
            join_by_property(filter=selector): {n for n in range(10, 60) if tag_of(n) != "blue"},
            join_broadcast(broadcast=True): set(everything),
            join_broadcast(broadcast=True): set(everything),
            join_late(**{"from": "CONSUME_FROM_TIMESTAMP", "time": began}): set(AFTER),
        }
        for member in wanted:
            member.wait(lambda member=member: len(member.queues) == QUEUES, "all queues")  # type: ignore[misc]  # a default binds the variable

        send(cluster, "mixed", AFTER, lambda: kill_leader(cluster))

        for member, numbers in wanted.items():
            member.wait(
                lambda member=member, numbers=numbers: set(member.numbers) >= numbers,  # type: ignore[misc]  # as above
                "all that it wants",
            )
            # Of the message before a time and that behind it, RocketMQ 4.9 takes the nearer one.
            may_begin = set(BEFORE[-len(TAGS) :]) if numbers == set(AFTER) else set()
            assert set(member.numbers) - may_begin == numbers
            member.leave()


@needs_linux_wheel
def test_queues_that_are_locked_are_consumed_in_order_when_the_leader_is_killed(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.dledger("topic", "create", "ordered", "--queues", str(QUEUES))
    send(cluster, "ordered", BEFORE)
    consume = cpp_command("consume-orderly", cluster.namesrv, "ordered", "strict", AFTER.stop)
    received = []
    with running(consume, tmp_path) as lines:
        for line in lines:
            received.append(json.loads(line))
            if len(received) == len(BEFORE):
                send(cluster, "ordered", AFTER, lambda: kill_leader(cluster))

    assert {got["n"] for got in received} == set(range(AFTER.stop))
    for tag in TAGS:
        numbers = [got["n"] for got in received if got["tags"] == tag]
        first_arrivals = list(dict.fromkeys(numbers))
        assert first_arrivals == sorted(first_arrivals)


def test_a_consumer_leaves_in_order_where_the_leader_has_just_died(cluster: RunningCluster) -> None:
    """It would say goodbye to the dead one too, and that is refused."""
    cluster.dledger("topic", "create", "left", "--queues", str(QUEUES))
    send(cluster, "left", BEFORE)
    with members(cluster, "left", "leavers") as join:
        member = join()
        member.wait(lambda: set(member.numbers) >= set(BEFORE), "all messages")
        killed = cluster.leader()
        cluster.kill(killed)
        member.leave()
        cluster.start(killed)
