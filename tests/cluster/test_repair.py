"""Damage at rest on one member of a real group: named, repaired, and nothing lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster

WAIT_SECONDS = 40.0
LINE = "x" * 500


@pytest.fixture
def scrubbed(tmp_path: Path) -> Iterator[RunningCluster]:
    """A group that checkpoints and scrubs often."""
    running = start_cluster(tmp_path / "data", checkpoint_seconds=1, scrub_pass_seconds=1)
    yield running
    running.stop()


def rot(path: Path, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(byte)
        kept = file.read(1)[0]
        file.seek(byte)
        file.write(bytes((kept ^ 1,)))


def segment(cluster: RunningCluster, node: str) -> Path:
    return min((cluster.data(node) / "commitlog").iterdir())


def repaired(cluster: RunningCluster, node: str, what: str) -> list[str]:
    """What the node says that it has repaired, once ``what`` is in it."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        views = {view.node.rpartition("/")[2]: view for view in cluster.view().nodes}
        told: list[str] = views[node].repaired
        if any(what in each for each in told):
            return told
        assert time.monotonic() < end, f"the damage was not repaired: {told}"
        time.sleep(0.3)


def equal_and_whole(cluster: RunningCluster) -> None:
    cluster.wait_until_level()
    cluster.stop()
    cluster.dledger("verify", *(str(cluster.data(node)) for node in cluster.nodes))


def test_a_rotten_entry_is_named_in_the_status_and_repaired_while_the_node_serves(
    scrubbed: RunningCluster,
) -> None:
    cluster = scrubbed
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "2")
    cluster.dledger("produce", "orders", stdin=f"{LINE}\n" * 400)
    cluster.wait_until_level()
    leader = cluster.leader()
    for node in (leader, next(node for node in cluster.nodes if node != leader)):
        rot(segment(cluster, node), 3000)
        told = repaired(cluster, node, "")
        assert str(segment(cluster, node)) in told[0]
    assert "was damaged and is repaired" in cluster.dledger("status").stdout
    equal_and_whole(cluster)


@pytest.mark.parametrize("harm", ["rot", "missing"])
def test_a_log_that_is_damaged_at_the_start_is_put_right_by_the_peers(
    scrubbed: RunningCluster, harm: str
) -> None:
    cluster = scrubbed
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "2")
    cluster.dledger("produce", "orders", stdin=f"{LINE}\n" * 400)
    cluster.wait_until_level()
    leader = cluster.leader()
    node = next(node for node in cluster.nodes if node != leader)
    cluster.kill(node)
    for path in (cluster.data(node) / "state").glob("checkpoint-*"):
        path.unlink()  # so that all of the log is read at the start
    path = segment(cluster, node)
    if harm == "rot":
        for byte in (200, 3000, 20_000, 90_000):
            rot(path, byte)
    else:
        path.unlink()
    cluster.start(node)
    cluster.wait_until_answering(node)
    cluster.dledger("produce", "orders", stdin="after\n" * 5)
    equal_and_whole(cluster)


def test_queues_that_are_lost_are_made_again_though_an_entry_below_the_checkpoint_has_rotted(
    scrubbed: RunningCluster,
) -> None:
    """The node runs meanwhile. What follows from those entries is made once peers gave them."""
    cluster = scrubbed
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "2")
    cluster.dledger("produce", "orders", stdin=f"{LINE}\n" * 400)
    cluster.wait_until_level()
    leader = cluster.leader()
    node = next(node for node in cluster.nodes if node != leader)
    cluster.end(node)  # which saves a checkpoint of all
    for byte in (3000, 90_000):
        rot(segment(cluster, node), byte)
    shutil.rmtree(cluster.data(node) / "consumequeue")
    cluster.start(node)
    cluster.wait_until_answering(node)
    cluster.dledger("produce", "orders", stdin="after\n" * 5)
    for queue in range(2):
        repaired(cluster, node, f"consumequeue/orders/{queue}")
    equal_and_whole(cluster)
