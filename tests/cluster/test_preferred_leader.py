"""The preferred leader leads whenever it can, and nothing is lost when it comes and goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster

SECONDS = 30.0


@pytest.fixture
def preferring(tmp_path: Path) -> Iterator[RunningCluster]:
    """A group of three that prefers n2."""
    running = start_cluster(tmp_path / "data", preferred_leader="n2")
    yield running
    running.stop()


def wait_for_leader(cluster: RunningCluster, node: str) -> None:
    deadline = time.monotonic() + SECONDS
    while cluster.leader() != node:
        assert time.monotonic() < deadline, f"{cluster.leader()} leads, not {node}"
        time.sleep(0.1)


def test_the_preferred_leader_leads_again_after_it_was_killed(preferring: RunningCluster) -> None:
    wait_for_leader(preferring, "n2")
    preferring.kill("n2")
    assert preferring.leader() != "n2"
    preferring.dledger("topic", "create", "orders")
    sent = preferring.ask("produce", "orders", stdin="one\ntwo\n")
    preferring.start("n2")
    wait_for_leader(preferring, "n2")
    told = preferring.ask("consume", "orders", "--group", "g", "--from", "earliest", "--count", "2")
    assert {message["msg_id"] for message in told} == {message["msg_id"] for message in sent}
