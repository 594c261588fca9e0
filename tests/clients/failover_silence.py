"""Measures how long other clients get no acknowledgement when the leader changes.

Run by hand: ``python -m tests.clients.failover_silence DIRECTORY [CLIENT...]``. A group of three
has the settings of a new cluster. Each client sends all the time, with its default settings, while
the leadership is transferred, while the nodes restart one after the other, and while the leader is
killed. It prints the longest time between two acknowledgements, and the sends that failed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from broker.cli.local_cluster.managed_processes import execute
from tests.clients.test_real_clients import INSTALLED, node_command, running
from tests.cluster.running_cluster import RunningCluster, start_cluster

TOPIC = "silence"
SETTLE_SECONDS = 3.0
AFTER_SECONDS = 40.0
"""Within this time, a client that waits for its next route gets it."""


def cpp(namesrv: str) -> list[str]:
    """The C++ core 1.0 under the Python client ``rocketmq``, one message at a time."""
    python = INSTALLED / "rocketmq" / "bin" / "python"
    load = Path(__file__).with_name("cpp_load.py")
    return [str(python), str(load), namesrv, TOPIC, "cpp"]


def node(namesrv: str) -> list[str]:
    """``ali-ons``, 16 messages at a time."""
    return node_command("load", namesrv, TOPIC, "node")


CLIENTS: Mapping[str, Callable[[str], list[str]]] = {"cpp": cpp, "node": node}


class Watch:
    """Reads what a client prints, and keeps the longest silence."""

    def __init__(self, lines: IO[str]) -> None:
        self.last = time.monotonic()
        self.longest = 0.0
        self.acknowledged = 0
        self.refused: list[str] = []
        self._lines = lines
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._lines:
            told = json.loads(line)
            if "refused" in told:
                self.refused.append(told["refused"])
                continue
            now = time.monotonic()
            self.longest = max(self.longest, now - self.last)
            self.last = now
            self.acknowledged += 1

    def begin(self) -> None:
        """Begins a new measurement."""
        self.longest, self.acknowledged, self.refused = 0.0, 0, []

    def report(self, client: str, event: str) -> None:
        """Prints the result since :meth:`begin`."""
        silent = max(self.longest, time.monotonic() - self.last)
        shown = f" ({self.refused[0][:90]})" if self.refused else ""
        print(
            f"{client:5} {event:18} {silent * 1000:7.0f} ms without an acknowledgement, "
            f"{self.acknowledged} acknowledged, {len(self.refused)} failed{shown}",
            flush=True,
        )


def transfer(cluster: RunningCluster) -> None:
    target = next(each for each in cluster.nodes if each != cluster.leader())
    cluster.dledger("leader", "transfer", cluster.group, target)


def rolling_restart(cluster: RunningCluster) -> None:
    for each in cluster.nodes:
        os.kill(cluster.pid(each), signal.SIGTERM)
        while cluster.runs(each):
            time.sleep(0.05)
        cluster.start(each)
        cluster.wait_until_answering(each)
        cluster.wait_until_level()


def kill(cluster: RunningCluster) -> None:
    killed = cluster.leader()
    cluster.kill(killed)
    cluster.start(killed)


EVENTS: Mapping[str, Callable[[RunningCluster], None]] = {
    "leader transfer": transfer,
    "rolling restart": rolling_restart,
    "kill -9": kill,
}


def main(directory: str, *clients: str) -> None:
    cluster = start_cluster(Path(directory), starter=execute)
    try:
        cluster.dledger("topic", "create", TOPIC, "--queues", "4")
        for client in clients or CLIENTS:
            with (
                tempfile.TemporaryDirectory() as home,
                running(CLIENTS[client](cluster.namesrv), Path(home)) as lines,
            ):
                watch = Watch(lines)
                while not watch.acknowledged:
                    time.sleep(0.1)
                for event, happen in EVENTS.items():
                    time.sleep(SETTLE_SECONDS)
                    watch.begin()
                    happen(cluster)
                    time.sleep(AFTER_SECONDS)
                    watch.report(client, event)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
