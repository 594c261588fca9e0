"""A member that was down while the others gave up old segments comes back with all that is left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster

SEGMENT = 1 << 20
LINES, LINE = 6000, "x" * 2000
WAIT_SECONDS = 60.0


@pytest.fixture
def small_logs(tmp_path: Path) -> Iterator[RunningCluster]:
    """A group that keeps 3 MiB of log, and checkpoints often."""
    running = start_cluster(
        tmp_path / "data",
        segment_size=SEGMENT,
        max_message_size=SEGMENT // 4,
        log_size_max=3 * SEGMENT,
        checkpoint_seconds=1,
    )
    yield running
    running.stop()


def begins_at(data: Path) -> int:
    return int(min(path.name for path in (data / "commitlog").iterdir()))


def wait_until_given_up(cluster: RunningCluster, node: str, position: int) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while begins_at(cluster.data(node)) <= position:
        assert time.monotonic() < end, "nothing was given up"
        time.sleep(0.2)


def test_a_member_behind_the_first_retained_entry_or_wiped_is_refilled_and_equals_the_others(
    small_logs: RunningCluster,
) -> None:
    cluster = small_logs
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster", "--queues", "3")
    cluster.dledger("produce", "orders", "--key", "early", stdin="first\n" * 10)
    leader = cluster.leader()
    away = next(node for node in cluster.nodes if node != leader)
    cluster.kill(away)
    behind = (cluster.data(away) / "commitlog").stat().st_size
    assert behind > 0
    cluster.dledger(
        "produce", "orders", "--key", "late", "--batch", "50", stdin=f"{LINE}\n" * LINES
    )
    wait_until_given_up(cluster, leader, 2 * SEGMENT)
    cluster.start(away)
    cluster.wait_until_answering(away)
    cluster.wait_until_level()
    cluster.dledger("produce", "orders", stdin="last\n" * 10)
    cluster.wait_until_level()
    assert begins_at(cluster.data(away)) > 0
    assert not (cluster.data(away) / "refill").exists()
    cluster.kill(away)
    for name in ("commitlog", "index", "consumequeue", "keyindex", "state"):
        shutil.rmtree(cluster.data(away) / name)
    cluster.start(away)
    cluster.wait_until_answering(away)
    cluster.wait_until_level()
    assert begins_at(cluster.data(away)) > 0
    cluster.stop()
    checked = cluster.dledger("verify", *(str(cluster.data(node)) for node in cluster.nodes))
    assert "damage" not in checked.stdout
