"""Apache's Python client of RocketMQ 5, unchanged, while the leader is killed under it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.clients.test_real_clients import HERE, INSTALLED, lines_of, running
from tests.cluster.running_cluster import RunningCluster, start_cluster

COUNT = 120
KILLED_AFTER = 40
IN_FLIGHT = 16
"""Messages that the consumer asks for at a time."""


def command(*arguments: object) -> list[str]:
    python = INSTALLED / "rocketmq_5" / "bin" / "python"
    if not python.exists():
        pytest.fail("the gRPC client is not set up: run `make clients`")
    return [str(python), str(HERE / "rocketmq_5.py"), *map(str, arguments)]


def endpoints(cluster: RunningCluster) -> str:
    """All nodes of the cluster, as the client takes them."""
    return ";".join(str(cluster.config(node).own.grpc) for node in cluster.nodes)


def create(cluster: RunningCluster, topic: str, kind: str = "NORMAL") -> None:
    cluster.dledger("topic", "create", topic, "--queues", "4", "--type", kind)


def kill_leader(cluster: RunningCluster) -> None:
    killed = cluster.leader()
    cluster.kill(killed)
    cluster.start(killed)


def told(lines: IO[str]) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, lines)


@contextmanager
def consuming(  # noqa: PLR0917 - as the command line has them
    cluster: RunningCluster, how: str, topic: str, group: str, home: Path, count: int, **env: str
) -> Iterator[Iterator[dict[str, Any]]]:
    """A consumer that has begun."""
    home.mkdir()
    at = endpoints(cluster)
    with running(command(how, at, topic, group, count), home, **env) as lines:
        heard = told(lines)
        assert next(heard) == {"ready": True}
        yield heard


@pytest.mark.parametrize("kind", ["normal", "fifo", "delay"])
def test_what_was_acknowledged_is_received_when_a_leader_is_killed(
    cluster: RunningCluster, tmp_path: Path, kind: str
) -> None:
    """Nothing is lost, nothing is stored twice, and nothing comes again after its ack."""
    create(cluster, "orders", kind.upper())
    sent = []
    with consuming(
        cluster, "simple", "orders", "readers", tmp_path / "consumer", COUNT, STAY="3"
    ) as heard:
        produce = command("produce", kind, endpoints(cluster), "orders", COUNT)
        with running(produce, tmp_path) as lines:
            for line in told(lines):
                sent.append(line)
                if len(sent) == KILLED_AFTER:
                    kill_leader(cluster)
        received = list(heard)

    assert [each["n"] for each in sent] == list(range(COUNT))
    acked = [each["n"] for each in received if each["acked"]]
    assert sorted({each["n"] for each in received}) == list(range(COUNT))
    assert len(acked) >= COUNT - IN_FLIGHT, "only acks in flight when the leader died are lost"
    assert len(acked) == len(set(acked)), "a message came again after its ack"
    described = {each["n"]: each for each in received}
    ids = {each["n"]: each["id"] for each in sent}
    for n, each in described.items():
        assert (each["id"], each["tag"], each["keys"]) == (ids[n], f"tag-{n % 3}", [f"key-{n}"])
        assert each["properties"] == {"number": str(n)}
    queues = cluster.ask("topic", "describe", "orders")["queues"]
    assert sum(queue["max_offset"] for queue in queues) == COUNT
    if kind == "fifo":
        for remainder in range(3):
            numbers = [n for n in dict.fromkeys(acked) if n % 3 == remainder]
            assert numbers == sorted(numbers)


def test_a_push_consumer_gets_everything_and_what_failed_again(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    create(cluster, "letters")
    count = 30
    with consuming(
        cluster, "push", "letters", "pushed", tmp_path / "consumer", count, FAIL="1"
    ) as heard:
        produce = command("produce", "normal", endpoints(cluster), "letters", count)
        assert len(lines_of(produce, tmp_path)) == count
        kill_leader(cluster)
        received = list(heard)

    assert sorted(each["n"] for each in received if each["acked"]) == list(range(count))
    attempts = {n: [each["attempt"] for each in received if each["n"] == n] for n in range(count)}
    assert {tuple(each) for n, each in attempts.items() if n % 2} == {(1, 2)}
    assert {tuple(each) for n, each in attempts.items() if n % 2 == 0} == {(1,)}


@pytest.mark.parametrize("chosen", ["TAG:tag-0 || tag-2", "SQL:number BETWEEN 10 AND 19"])
def test_messages_are_filtered(cluster: RunningCluster, tmp_path: Path, chosen: str) -> None:
    create(cluster, "mixed")
    wanted = [n for n in range(COUNT) if n % 3 != 1]
    if chosen.startswith("SQL"):
        wanted = list(range(10, 20))
    with consuming(
        cluster,
        "simple",
        "mixed",
        "choosers",
        tmp_path / "consumer",
        len(wanted),
        FILTER=chosen,
        STAY="2",
    ) as heard:
        produce = command("produce", "normal", endpoints(cluster), "mixed", COUNT)
        lines_of(produce, tmp_path)
        received = [each["n"] for each in heard]
    assert sorted(received) == wanted


def test_what_was_recalled_is_never_received_though_the_leader_is_killed(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    create(cluster, "later", "DELAY")
    count = 20
    kept = list(range(0, count, 2))
    with consuming(
        cluster, "simple", "later", "waiters", tmp_path / "consumer", len(kept), STAY="4"
    ) as heard:
        with running(command("recall", endpoints(cluster), "later", count), tmp_path) as lines:
            ids, recalled = {}, {}
            for line in told(lines):
                if "n" in line:
                    ids[line["n"]] = line["id"]
                elif "recalled" in line:
                    recalled[line["recalled"]] = line["id"]
                    if line["recalled"] == count // 2 + 1:
                        kill_leader(cluster)
                else:
                    refused = line["refused"]
        received = [each["n"] for each in heard]
    assert recalled == {n: ids[n] for n in range(1, count, 2)}
    assert sorted(received) == kept
    assert "has been delivered" in refused


def lead_where_dialled(cluster: RunningCluster) -> str:
    """The client dials the first address by its text: there is its stream. That node is to lead."""
    dialled = min(cluster.nodes, key=lambda node: str(cluster.config(node).own.grpc))
    if cluster.leader() != dialled:
        cluster.dledger("leader", "transfer", cluster.group, dialled)
    return dialled


def test_a_node_that_stops_goes_when_its_clients_have_gone(tmp_path: Path) -> None:
    """They ask for their routes after ten seconds, and no call of theirs fails."""
    count = 600
    cluster = start_cluster(tmp_path / "data", drain_seconds=60)
    try:
        create(cluster, "orders")
        stops = lead_where_dialled(cluster)
        at, home = endpoints(cluster), tmp_path / "consumer"
        with (
            consuming(cluster, "simple", "orders", "readers", home, count, STAY="1") as heard,
            running(
                command("produce", "normal", at, "orders", count), tmp_path, TRIES="1"
            ) as lines,
        ):
            sent = []
            for line in told(lines):
                sent.append(line["n"])
                if len(sent) == KILLED_AFTER:
                    os.kill(cluster.pid(stops), signal.SIGTERM)
            received = list(heard)
        cluster.wait_until_ended(stops)
    finally:
        cluster.stop()
    assert sent == list(range(count))
    assert sorted(each["n"] for each in received if each["acked"]) == sent
    assert len(received) == count


def test_transactions_end_as_their_producer_says_when_a_leader_is_killed(tmp_path: Path) -> None:
    """Its stream dies, too. Routes leave the node out for a while, so the client opens another
    stream with its next route."""
    cluster = start_cluster(
        tmp_path / "data",
        transaction_timeout_ms=3_000,
        transaction_check_interval_ms=2_000,
        transaction_check_max=1_000,
    )
    count = 60
    committed = [n for n in range(count) if n % 2 == 0]
    try:
        create(cluster, "payments", "TRANSACTION")
        lead_where_dialled(cluster)
        at = endpoints(cluster)
        sent = []
        home = tmp_path / "consumer"
        with (
            consuming(
                cluster, "simple", "payments", "tellers", home, len(committed), STAY="4"
            ) as heard,
            running(command("transactions", at, "payments", count), tmp_path) as lines,
        ):
            for line in told(lines):
                if "n" in line:
                    sent.append(line["n"])
                if sent == list(range(count // 2)) and "n" in line:
                    kill_leader(cluster)
                if len(sent) == count:
                    break
            received = list(heard)
    finally:
        cluster.stop()
    assert sent == list(range(count))
    assert sorted({each["n"] for each in received}) == committed
    acked = [each["n"] for each in received if each["acked"]]
    assert len(acked) == len(set(acked)) >= len(committed) - IN_FLIGHT
