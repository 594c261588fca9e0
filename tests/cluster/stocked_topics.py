"""Topics with messages, for tests of commands that read them."""

from __future__ import annotations

import pytest

from tests.cluster.running_cluster import RunningCluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name: str = request.node.name
    return name.removeprefix("test_")


@pytest.fixture
def stocked(shared_cluster: RunningCluster, topic: str) -> str:
    """A topic with three messages in its one queue."""
    stock(shared_cluster, topic)
    return topic


def stock(cluster: RunningCluster, topic: str) -> None:
    cluster.dledger("topic", "create", topic, "--queues", "1")
    cluster.dledger("produce", topic, "--tag", "T", "--key", "K", stdin="one\ntwo\nthree\n")


def consume(cluster: RunningCluster, topic: str, group: str) -> list[str]:
    done = cluster.dledger("consume", topic, "--group", group, "--from", "earliest", "--count", "3")
    return done.stdout.splitlines()
