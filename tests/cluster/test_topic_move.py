"""``dledger topic move``: a topic goes to another broker group, and no message is lost by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.local_cluster.local_cluster import design_cluster, open_cluster
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from tests.cluster.running_cluster import SEGMENT_SIZE, RunningCluster
from tests.cluster.server_starter import start_server

MOVE = ("topic", "move", "orders", "--from", "broker-a", "--to", "broker-b", "--settle", "0.1")


@pytest.fixture
def two_groups(tmp_path: Path) -> Iterator[RunningCluster]:
    """Two broker groups of one node each."""
    design_cluster(tmp_path, nodes=1, groups=2, ports=Ports(0, 0, 0)).write()
    for path in tmp_path.glob("*/*/node.toml"):
        text = re.sub(
            r"^segment_size = .*$",
            f"segment_size = {SEGMENT_SIZE}",
            path.read_text(),
            flags=re.MULTILINE,
        )
        path.write_text(text)
    local = open_cluster(tmp_path)
    try:
        local.start(start_server)
        wait_until_serving(local)
        yield RunningCluster(local)
    finally:
        local.stop()


def stocked(cluster: RunningCluster, *options: str) -> None:
    """Five messages on broker-a, of which a group has read two."""
    address = str(cluster.config("broker-a/n0").own.address)
    cluster.dledger("topic", "create", "orders", "-b", address, "--queues", "1", *options)
    cluster.dledger("produce", "orders", stdin="1\n2\n3\n4\n5\n")
    read = cluster.dledger(
        "consume", "orders", "--group", "g", "--from", "earliest", "--count", "2"
    )
    assert read.stdout == "1\n2\n"


def brokers(cluster: RunningCluster) -> set[str]:
    return {each["broker"] for each in cluster.ask("topic", "describe", "orders")["queues"]}


def test_a_move_goes_on_where_it_was_and_nothing_is_lost(two_groups: RunningCluster) -> None:
    stocked(two_groups)
    planned = two_groups.dledger(*MOVE, "--dry-run").stdout
    assert "would wait for g, which has 3 messages to consume" in planned
    assert brokers(two_groups) == {"broker-a"}
    refused = two_groups.dledger(*MOVE, code=1).stderr
    assert "not all of orders is consumed on broker-a: g 3" in refused
    assert brokers(two_groups) == {"broker-a", "broker-b"}
    two_groups.dledger("produce", "orders", stdin="6\n")
    read = two_groups.dledger("consume", "orders", "--group", "g", "--count", "4").stdout
    assert sorted(read.split()) == ["3", "4", "5", "6"]
    assert "moved orders" in two_groups.dledger(*MOVE, "--wait").stdout
    assert brokers(two_groups) == {"broker-b"}
    assert two_groups.dledger("consume", "orders").stdout == "6\n"
    assert two_groups.ask(*MOVE)["moved"] is True


def test_an_ordered_topic_takes_nothing_new_until_its_source_is_empty(
    two_groups: RunningCluster,
) -> None:
    stocked(two_groups, "--order")
    two_groups.dledger(*MOVE, code=1)
    sent = two_groups.dledger("produce", "orders", "--timeout", "3", stdin="no\n", code=1)
    assert "no queue with the permission" in sent.stderr
    read = two_groups.dledger("consume", "orders", "--group", "g", "--count", "3").stdout
    assert read == "3\n4\n5\n"
    two_groups.dledger(*MOVE, "--wait")
    two_groups.dledger("produce", "orders", stdin="6\n")
    assert brokers(two_groups) == {"broker-b"}
    assert two_groups.dledger("consume", "orders", "--group", "g", "--count", "1").stdout == "6\n"


def test_what_nobody_reads_is_not_deleted_without_a_word(two_groups: RunningCluster) -> None:
    stocked(two_groups)
    two_groups.dledger("group", "delete", "g")
    refused = two_groups.dledger(*MOVE, code=1).stderr
    assert "its 5 messages would be deleted unread" in refused
    two_groups.dledger(*MOVE, "--yes")
    assert brokers(two_groups) == {"broker-b"}
