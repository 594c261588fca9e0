"""Three voters become five under a client written by others: nothing refused, nothing lost."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_real_clients import HERE, cpp_command, needs_linux_wheel
from tests.cluster.running import RunningCluster

THREADS = 4
BEFORE, AFTER = 100, 100


@pytest.fixture
def growing(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """A cluster whose nodes may be more than it began with."""
    yield cluster
    cluster.dledger("down", "--data", str(cluster.directory))


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Load:
    """The client, and what it was told so far."""

    def __init__(self, cluster: RunningCluster, topic: str, home: Path) -> None:
        python, *_ = cpp_command()
        self._client = subprocess.Popen(
            [python, str(HERE / "cpp_load.py"), cluster.namesrv, topic, str(THREADS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"HOME": str(home)},
        )
        self.told: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._client.stdout is not None
        with self._client.stdout as lines:
            for line in lines:
                with self._more:
                    self.told.append(json.loads(line))
                    self._more.notify()

    def wait_for(self, more: int) -> int:
        """Returns after so many more messages; how many there were then."""
        with self._more:
            wanted = len(self.told) + more
            assert self._more.wait_for(lambda: len(self.told) >= wanted, timeout=60)
            return len(self.told)

    def end(self) -> None:
        assert self._client.stdin is not None
        self._client.stdin.close()
        code = self._client.wait(60)
        self._reader.join()
        assert code == 0


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
    count = len(load.told)
    stored = cluster.ask(
        *("consume", "orders", "--group", "readers", "--from", "earliest"),
        *("--count", str(count), "--timeout", "60"),
    )
    assert sorted(int(message["body"]) for message in stored) == list(range(count))
