"""Ways of sending of Apache's C++ client, unchanged: one way, batches, queues by key, deflated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.clients.test_real_clients import HERE, cpp_command, needs_linux_wheel, running
from tests.cluster.running_cluster import RunningCluster

NUMBERS = list(range(12))
KEYS = 3


def sent(cluster: RunningCluster, home: Path, way: str, queues: int) -> list[dict[str, Any]]:
    """What is stored after the client has sent 12 messages in that way, as they come."""
    cluster.dledger("topic", "create", way, "--queues", str(queues))
    python, *_ = cpp_command()
    command = [python, str(HERE / "rocketmq_cpp_sends.py"), way, cluster.namesrv, way]
    count = str(len(NUMBERS))
    with running(command, home):
        stored = cluster.ask(
            *("consume", way, "--group", way, "--from", "earliest"),
            *("--count", count, "--timeout", "60"),
        )
    assert sorted(int(message["body"].split()[0]) for message in stored) == NUMBERS
    found: list[dict[str, Any]] = stored
    return found


@needs_linux_wheel
def test_messages_sent_one_way_are_stored(shared_cluster: RunningCluster, tmp_path: Path) -> None:
    assert len(sent(shared_cluster, tmp_path, "oneway", queues=4)) == len(NUMBERS)


@needs_linux_wheel
def test_a_batch_is_stored_together(shared_cluster: RunningCluster, tmp_path: Path) -> None:
    stored = sent(shared_cluster, tmp_path, "batch", queues=4)
    assert len({message["queue_id"] for message in stored}) == 1
    assert [int(message["body"]) for message in stored] == NUMBERS


@needs_linux_wheel
def test_messages_of_a_key_stand_in_one_queue_in_the_order_sent(
    shared_cluster: RunningCluster, tmp_path: Path
) -> None:
    stored = sent(shared_cluster, tmp_path, "by_key", queues=KEYS)
    for key in range(KEYS):
        of_key = [message for message in stored if int(message["body"]) % KEYS == key]
        assert len({message["queue_id"] for message in of_key}) == 1
        of_key.sort(key=lambda message: message["queue_offset"])
        assert [int(message["body"]) for message in of_key] == NUMBERS[key::KEYS]


@needs_linux_wheel
def test_large_bodies_travel_deflated_and_come_back_whole(
    shared_cluster: RunningCluster, tmp_path: Path
) -> None:
    stored = sent(shared_cluster, tmp_path, "large", queues=4)
    assert {len(message["body"]) for message in stored} == {100_000}
    queues = shared_cluster.ask("topic", "describe", "large")["queues"]
    assert sum(queue["max_offset"] for queue in queues) == len(NUMBERS)
    written = sum(len(bytes(path.read_bytes()).rstrip(b"\0")) for path in _log(shared_cluster))
    assert written < 100_000


def _log(cluster: RunningCluster) -> list[Path]:
    return sorted((cluster.data(cluster.leader()) / "commitlog").iterdir())
