"""``dledger mirror`` between two clusters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster, while_needed

COPY_SECONDS = 60.0


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningCluster, RunningCluster]]:
    """The source, and the target."""
    source = start_cluster(tmp_path_factory.mktemp("source") / "data", nodes=1)
    try:
        target = start_cluster(tmp_path_factory.mktemp("target") / "data", nodes=1)
        try:
            yield source, target
        finally:
            target.stop()
    finally:
        source.stop()


@pytest.fixture
def source(clusters: tuple[RunningCluster, RunningCluster]) -> RunningCluster:
    return clusters[0]


@pytest.fixture
def target(clusters: tuple[RunningCluster, RunningCluster]) -> RunningCluster:
    return clusters[1]


def produce(cluster: RunningCluster, topic: str, first: int, count: int) -> None:
    lines = "".join(f"line {number}\n" for number in range(first, first + count))
    options = ("--key", "k1", "--tag", "paid", "--property", "region=eu")
    cluster.dledger("produce", topic, *options, stdin=lines)


def by_queue(cluster: RunningCluster, topic: str) -> list[list[str]]:
    """The bodies of each queue that has any, in order."""
    found: dict[int, list[str]] = {}
    for each in cluster.ask("consume", topic, "--offset", "0"):
        found.setdefault(each["queue_id"], []).append(each["body"])
    return sorted(found.values())


def copied(source: RunningCluster, target: RunningCluster, topic: str) -> Any:
    arguments = ("mirror", topic, "--source", source.namesrv, "--once", "--json")
    return json.loads(target.dledger(*arguments).stdout)["topics"][topic]


def refused(source: RunningCluster, target: RunningCluster, topic: str) -> str:
    arguments = ("mirror", topic, "--source", source.namesrv, "--once")
    return target.dledger(*arguments, code=1).stderr


def test_messages_are_copied_once_and_in_order(
    source: RunningCluster, target: RunningCluster
) -> None:
    source.dledger("topic", "create", "orders", "--queues", "2")
    target.dledger("topic", "create", "orders", "--queues", "3")
    produce(source, "orders", 0, 200)
    assert copied(source, target, "orders") == 200
    assert by_queue(target, "orders") == by_queue(source, "orders")
    assert copied(source, target, "orders") == 0
    produce(source, "orders", 200, 50)
    assert copied(source, target, "orders") == 50
    assert by_queue(target, "orders") == by_queue(source, "orders")
    first = target.ask("consume", "orders", "--offset", "0")[0]
    assert (first["keys"], first["tags"]) == (["k1"], "paid")
    assert first["properties"]["region"] == "eu"


def test_a_mirror_that_is_killed_goes_on_and_copies_nothing_twice(
    source: RunningCluster, target: RunningCluster
) -> None:
    for cluster in (source, target):
        cluster.dledger("topic", "create", "events", "--queues", "2")
    command = [sys.executable, "-m", "broker", "mirror", "events"]
    command += ["--source", source.namesrv, "--namesrv", target.namesrv]
    for part in range(3):
        produce(source, "events", part * 500, 500)
        before = len(target.ask("consume", "events", "--offset", "0"))
        mirror = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ})
        with while_needed(mirror):
            ends_at = time.monotonic() + COPY_SECONDS
            while len(target.ask("consume", "events", "--offset", "0")) == before:
                assert time.monotonic() < ends_at
                assert mirror.poll() is None
            mirror.send_signal(signal.SIGKILL)
    copied(source, target, "events")
    assert by_queue(target, "events") == by_queue(source, "events")


def test_what_cannot_be_mirrored_is_told(source: RunningCluster, target: RunningCluster) -> None:
    source.dledger("topic", "create", "wide", "--queues", "3")
    target.dledger("topic", "create", "wide", "--queues", "2")
    assert "each needs its own" in refused(source, target, "wide")

    for cluster in (source, target):
        cluster.dledger("topic", "create", "shared", "--queues", "1")
    produce(target, "shared", 0, 1)
    assert "only the mirror may write to it" in refused(source, target, "shared")

    for cluster in (source, target):
        cluster.dledger("topic", "create", "other", "--queues", "1")
    produce(source, "other", 0, 3)
    origin = ("--property", "MIRROR_ORIGIN=broker-a 0 2 1700000000000")
    target.dledger("produce", "other", *origin, stdin="of another cluster\n")
    assert "is not the queue that was copied" in refused(source, target, "other")
    target.dledger("produce", "other", "--property", "MIRROR_ORIGIN=me", stdin="x\n")
    assert "'me' is not an origin" in refused(source, target, "other")


def test_a_topic_that_was_made_anew_goes_on(source: RunningCluster, target: RunningCluster) -> None:
    for cluster in (source, target):
        cluster.dledger("topic", "create", "anew", "--queues", "1")
    produce(source, "anew", 0, 3)
    assert copied(source, target, "anew") == 3
    source.dledger("topic", "delete", "anew")
    source.dledger("topic", "create", "anew", "--queues", "1")
    produce(source, "anew", 3, 5)
    assert copied(source, target, "anew") == 5
    assert by_queue(target, "anew") == [[f"line {number}" for number in range(8)]]


def test_what_is_nowhere_cannot_be_mirrored(source: RunningCluster, target: RunningCluster) -> None:
    assert "does not exist" in refused(source, target, "nowhere")
