"""Consumers of other clients in processes of their own. They print a line for each event."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.clients.test_real_clients import HERE, node_program
from tests.cluster.running_cluster import RunningCluster

SECONDS = 120.0


class Member:
    """One process of ``ali_ons_member.js``. A thread reads what it prints."""

    def __init__(self, cluster: RunningCluster, topic: str, group: str, **options: object) -> None:
        command = [node_program()]
        self.process = subprocess.Popen(
            [
                *command,
                str(HERE / "ali_ons_member.js"),
                cluster.namesrv,
                topic,
                group,
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"HOME": str(cluster.directory), "PATH": os.environ["PATH"]},
        )
        self.queues: list[int] = []
        self.got: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            with self._changed:
                if "queues" in told:
                    self.queues = told["queues"]
                else:
                    self.got.append(told)
                self._changed.notify_all()

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        """Returns when ``reached`` holds; it is asked again whenever this member says something,
        and now and then, as it may ask of other members too."""
        with self._changed:
            ends_at = time.monotonic() + SECONDS
            while time.monotonic() < ends_at:
                if reached():
                    return
                self._changed.wait(0.1)
        raise AssertionError(f"not within {SECONDS:g} s: {what}; {self.queues}, {self.got[-3:]}")

    @property
    def numbers(self) -> list[int]:
        """The numbers of the received messages, in order."""
        return [got["n"] for got in self.got]

    def leave(self) -> None:
        """The client unregisters and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SECONDS) == 0
        self._reader.join()

    def kill(self) -> None:
        """Kills the process."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def members(cluster: RunningCluster, topic: str, group: str) -> Iterator[Callable[..., Member]]:
    """Starts members. Those that still run at the end are killed."""
    made: list[Member] = []

    def join(**options: object) -> Member:
        made.append(Member(cluster, topic, group, **options))
        return made[-1]

    try:
        yield join
    finally:
        for member in made:
            member.kill()
