"""Quotas in a running cluster: all nodes have them, and the next leader enforces them."""

from __future__ import annotations

import time

from broker.limits import QUOTAS
from tests.cluster.running_cluster import RunningCluster


def produced_in(cluster: RunningCluster, topic: str, lines: int) -> float:
    """Seconds that it takes to send them."""
    began = time.monotonic()
    cluster.dledger("produce", topic, stdin="x\n" * lines)
    return time.monotonic() - began


def test_a_quota_holds_on_the_next_leader_and_nothing_is_dropped(
    shared_cluster: RunningCluster, topic: str
) -> None:
    shared_cluster.dledger("topic", "create", topic, "--queues", "1")
    assert "moon" in shared_cluster.dledger("quota", "set", "moon", "a", code=2).stderr
    shared_cluster.dledger("quota", "set", "topic", topic, "--produce-messages", "100")
    listed = shared_cluster.ask("quota", "list")["quotas"]
    assert [(each["type"], each["name"], each["produce_messages"]) for each in listed] == [
        ("topic", topic, 100)
    ]
    leader = shared_cluster.leader()
    other = next(node for node in shared_cluster.nodes if node != leader)
    shared_cluster.dledger("leader", "transfer", shared_cluster.group, other)
    # 100 may be sent at once. If the rest is read at once, the last answers are held back for two
    # seconds all the same.
    assert produced_in(shared_cluster, topic, 400) > QUOTAS.wait_seconds_max
    (queue,) = shared_cluster.ask("topic", "describe", topic)["queues"]
    assert queue["max_offset"] == 400
    shared_cluster.dledger("quota", "unset", "topic", topic)
    assert shared_cluster.ask("quota", "list")["quotas"] == []
