"""Three voters become five under a client written by others: nothing refused, nothing lost."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_real_clients import HERE, cpp_command, needs_linux_wheel
from tests.cluster.running_cluster import RunningCluster, free_address

CLIENTS = 4
BEFORE, AFTER = 100, 100
WAIT_SECONDS = 120.0


@pytest.fixture
def growing(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """A cluster whose nodes may be more than it began with."""
    yield cluster
    cluster.dledger("down", "--data", str(cluster.directory))


class Load:
    """Several clients, and what they were told so far."""

    def __init__(self, cluster: RunningCluster, topic: str, home: Path) -> None:
        python, *_ = cpp_command()
        self._clients = [
            subprocess.Popen(
                [python, str(HERE / "cpp_load.py"), cluster.namesrv, topic, str(name)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"HOME": str(home)},
            )
            for name in range(CLIENTS)
        ]
        self.told: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._readers = [threading.Thread(target=self._read, args=(one,)) for one in self._clients]
        for reader in self._readers:
            reader.start()

    def _read(self, client: subprocess.Popen[str]) -> None:
        assert client.stdout is not None
        with client.stdout as lines:
            for line in lines:
                with self._more:
                    self.told.append(json.loads(line))
                    self._more.notify()

    def wait_for(self, more: int) -> int:
        """Returns after so many more messages; how many there were then."""
        with self._more:
            wanted = len(self.told) + more
            assert self._more.wait_for(lambda: len(self.told) >= wanted, timeout=WAIT_SECONDS)
            return len(self.told)

    def end(self) -> None:
        for client in self._clients:
            assert client.stdin is not None
            client.stdin.close()
        try:
            codes = [client.wait(WAIT_SECONDS) for client in self._clients]
        finally:
            for client in self._clients:
                client.kill()
            for reader in self._readers:
                reader.join()
        assert codes == [0] * CLIENTS


@needs_linux_wheel
def test_nothing_is_refused_or_lost_while_three_voters_become_five(
    growing: RunningCluster, tmp_path: Path
) -> None:
    cluster = growing
    cluster.dledger("topic", "create", "orders", "--queues", "4")
    load = Load(cluster, "orders", tmp_path)
    try:
        before = load.wait_for(BEFORE)
        for node in ("n3", "n4"):
            address = free_address()
            data = ("--data", str(cluster.directory))
            members = cluster.ask("member", "add", "broker-a", node, address, *data)
        assert members["voters"] == ["n0", "n1", "n2", "n3", "n4"]
        during = load.wait_for(0) - before
        assert during > 0
        load.wait_for(AFTER)
    finally:
        load.end()
    assert [told for told in load.told if "refused" in told] == []
    sent = sorted(told["body"] for told in load.told)
    stored = cluster.ask(
        *("consume", "orders", "--group", "readers", "--from", "earliest"),
        *("--count", str(len(sent)), "--timeout", "60"),
    )
    assert sorted(message["body"] for message in stored) == sent
