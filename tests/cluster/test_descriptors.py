"""Nodes that may have few files open, and connections that would take all of them."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.cli.local_cluster.local_cluster import design_cluster, open_cluster
from broker.cli.local_cluster.managed_processes import execute
from broker.cli.local_cluster.port_layout import Ports
from tests.cluster.running_cluster import RunningCluster, start_cluster, while_needed

FILES = 400
"""``ulimit -n`` of each process. Half of them are for files, and an eighth for each of HTTP and
peers; clients get the rest."""

CLIENTS = FILES // 4
BURST = 50
"""Connections that are opened at once. Those that a server has not accepted fill its backlog, and
then the kernel tries again only after a second."""

SECONDS = 40.0
LINES = 200
SETTINGS: dict[str, Any] = {
    "segment_size": 2 << 20,
    "max_message_size": 1 << 19,
    "checkpoint_seconds": 1,
}


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[RunningCluster]:
    """A group of three whose processes may have few files open."""
    directory = tmp_path / "data"
    design_cluster(directory, nodes=3, ports=Ports(0, 0, 0)).write()
    set_settings(directory)
    command = [sys.executable, "-m", "broker", "up", "--detach", "--data", str(directory)]
    subprocess.run(
        ["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh", *command],
        check=True,
        capture_output=True,
        timeout=120,
    )
    running = RunningCluster(open_cluster(directory))
    yield running
    running.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path / "data", starter=execute, **SETTINGS)
    yield running
    running.stop()


def set_settings(directory: Path) -> None:
    for path in directory.glob("*/*/node.toml"):
        text = path.read_text()
        for key, value in SETTINGS.items():
            text = re.sub(rf"^{key} = .*$", f"{key} = {json.dumps(value)}", text, flags=re.M)
        path.write_text(text)


def ports(cluster: RunningCluster, node: str) -> dict[str, tuple[str, int]]:
    config = cluster._raft_log.node(node).config
    return {name: (at.host, at.port) for name, at in config.own.endpoints.items()}


def pid(cluster: RunningCluster, node: str) -> int:
    found = cluster._raft_log.node(node).process.pid
    assert found is not None
    return found


def logs(cluster: RunningCluster) -> str:
    return "".join((cluster.data(node) / "log/node.log").read_text() for node in cluster.nodes)


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def connect_many(stack: ExitStack, address: tuple[str, int], count: int) -> list[socket.socket]:
    connections = []
    for number in range(count):
        if number % BURST == 0:
            time.sleep(0.02)
        connection = stack.enter_context(socket.socket())
        connection.settimeout(5)
        try:
            connection.connect(address)
        except OSError:
            continue
        connections.append(connection)
    return connections


def allow_connections(count: int) -> None:
    """To this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            pytest.skip(f"this process may open {hard} files, {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Producer:
    """A client that is connected before others take all connections, and sends what it is told."""

    def __init__(self, cluster: RunningCluster, told: Path) -> None:
        self._told = told
        self.sent = 0
        with told.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "broker", "produce", "orders", "--json"],
                stdin=subprocess.PIPE,
                stdout=out,
                text=True,
                env={"NAMESRV_ADDR": cluster.namesrv},
            )

    def send(self) -> None:
        """Returns when all is acknowledged."""
        assert self.process.stdin is not None
        for _ in range(LINES):
            self.process.stdin.write(f"line {self.sent} {'x' * 2000}\n")
            self.sent += 1
        self.process.stdin.flush()
        deadline = time.monotonic() + SECONDS
        while len(self._told.read_bytes().splitlines()) < self.sent:
            assert time.monotonic() < deadline, "what was sent is not acknowledged"
            assert self.process.poll() is None
            time.sleep(0.1)


def test_idle_connections_take_no_descriptor_from_files(
    limited: RunningCluster, tmp_path: Path
) -> None:
    cluster = limited
    allow_connections(8_000)
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster")
    producer = Producer(cluster, tmp_path / "told")
    with ExitStack() as stack:
        stack.enter_context(while_needed(producer.process))
        producer.send()
        idle: dict[str, list[socket.socket]] = {}
        for node in cluster.nodes:
            for name, address in ports(cluster, node).items():
                found = connect_many(stack, address, 2 * FILES)
                idle.setdefault(name, []).extend(found)
        # Marks, checkpoints, looks at the disk, and new segments.
        for _ in range(8):
            producer.send()
            time.sleep(0.5)
        assert all(cluster.runs(node) for node in cluster.nodes), logs(cluster)
        nodes = len(cluster.nodes)
        assert 0 < sum(map(is_open, idle["address"])) <= CLIENTS * nodes
        assert 0 < sum(map(is_open, idle["http"])) <= FILES // 8 * nodes
        assert sum(map(is_open, idle["peer"])) <= FILES // 8 * nodes  # they had to say who they are
    assert len(cluster.ask("produce", "orders", stdin="one more\n" * 2)) == 2
    told = logs(cluster)
    assert "Too many open files" not in told
    assert " CRITICAL " not in told
    assert 0 < told.count("refused a connection") < 60  # one of a kind, in ten seconds
    cluster.wait_until_level()


def test_a_node_whose_descriptors_are_all_taken_goes_on(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """By something that nobody counts, or because those of the whole system are used up."""
    allow_connections(8_000)
    cluster.dledger("topic", "create", "orders", "-c", "DefaultCluster")
    producer = Producer(cluster, tmp_path / "told")
    with ExitStack() as stack:
        stack.enter_context(while_needed(producer.process))
        producer.send()
        for node in cluster.nodes:
            number = pid(cluster, node)
            used = len(os.listdir(f"/proc/{number}/fd"))
            _, hard = usual = resource.prlimit(number, resource.RLIMIT_NOFILE)
            resource.prlimit(number, resource.RLIMIT_NOFILE, (used + 30, hard))
            stack.callback(resource.prlimit, number, resource.RLIMIT_NOFILE, usual)
            connect_many(stack, ports(cluster, node)["http"], 100)
            deadline = time.monotonic() + SECONDS
            # The kernel gives out the lowest number that is free.
            while max(map(int, os.listdir(f"/proc/{number}/fd"))) < used + 29:
                assert time.monotonic() < deadline, "the connections are not accepted"
                time.sleep(0.05)
        for _ in range(8):
            producer.send()
            time.sleep(0.5)
        assert all(cluster.runs(node) for node in cluster.nodes), logs(cluster)
    assert len(cluster.ask("produce", "orders", stdin="one more\n" * 2)) == 2
    assert " CRITICAL " not in logs(cluster)
    cluster.wait_until_level()
