"""One run: a group starts, clients use it under faults, the faults stop, all is checked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from store.counted import counted
from tests.soak.clients import READERS, Clients, read_all
from tests.soak.cluster import SoakCluster
from tests.soak.faults import Faults
from tests.soak.network import open_network
from tests.soak.record import Place, Record

TOPIC_QUEUES = "4"
QUIET_SECONDS = 60.0
"""How long the last transactions and deliveries may take after the faults."""
LOOK_AGAIN_SECONDS = 0.5


@dataclass(slots=True)
class Summary:
    """The outcome of a run."""

    seed: int
    minutes: float
    record: Record
    faults: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    """Faults that the machine does not allow, and why."""
    slowest_recovery: float = 0.0
    stored: int = 0

    def lines(self) -> list[str]:
        """The summary as text."""
        record = self.record
        committed = sum(1 for decision in record.decisions.values() if decision)
        silence = record.silence
        told = [
            f"seed {self.seed}, {self.minutes:g} minutes, "
            f"{sum(self.faults.values())} faults: "
            + ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())),
            *(f"left out: {why}" for why in self.skipped),
            (
                f"{len(record.sends)} messages: {record.acknowledged} acknowledged, "
                f"{record.refused} refused, {record.unknown} unknown; {self.stored} stored; "
                f"{record.delivered} deliveries"
            ),
            f"{len(record.decisions)} transactions, {committed} of them committed",
            (
                f"longest silence {silence.seconds:.1f} s (from second {silence.since:.1f} on); "
                f"slowest recovery {self.slowest_recovery:.1f} s"
            ),
        ]
        if record.findings_untold:
            told.append(counted(record.findings_untold, "more finding"))
        return [*told, counted(len(record.findings) + record.findings_untold, "finding")]


async def run(
    directory: Path, *, minutes: float, seed: int, nodes: int, note: Callable[[str], None]
) -> Summary:
    """Runs in an empty directory. Every process has ended when it returns."""
    began = time.monotonic()
    record = Record(lambda: time.monotonic() - began)
    summary = Summary(seed, minutes, record)
    rng = Random(seed)
    network = open_network()
    cluster = SoakCluster(directory, network, nodes=nodes)

    def say(what: str) -> None:
        note(f"{record.now():8.2f} s: {what}")

    try:
        disk_that_fills: int | None = nodes - 1
        if why := cluster.mount_disk(nodes - 1):
            summary.skipped.append(why)
            disk_that_fills = None
        if network.missing is not None:
            summary.skipped.append(f"cut links: {network.missing}")
        cluster.start_all()
        await asyncio.to_thread(cluster.wait_until_healthy)
        await asyncio.to_thread(_make_topics, cluster)
        clients = Clients(cluster.namesrv, record, rng)
        record.last_acknowledged_at = record.now()
        clients.start()
        faults = Faults(cluster, record, rng, say, disk_that_fills=disk_that_fills)
        faulting = asyncio.get_running_loop().create_task(faults.run())
        await asyncio.wait([faulting], timeout=60.0 * minutes)
        faults.stop()
        await faulting
        clients.check_running()
        await faults.become_whole()
        await clients.stop_sending()
        say("compare what is stored with what was told")
        await _compare(cluster, record, summary)
        await clients.stop()
        summary.faults = faults.counts
        summary.slowest_recovery = max(faults.whole_again, default=0.0)
        for what in (*cluster.ended_by_themselves(), *cluster.defects_logged()):
            record.find(what)
        await asyncio.to_thread(cluster.stop)
        _verify(cluster, record)
    finally:
        cluster.stop()
        cluster.unmount_disks()
        network.close()
    return summary


def _make_topics(cluster: SoakCluster) -> None:
    for topic in ("orders", "payments"):
        arguments = ["topic", "create", topic, "--queues", TOPIC_QUEUES]
        _dledger(cluster, *arguments).check_returncode()


async def _compare(cluster: SoakCluster, record: Record, summary: Summary) -> None:
    ends_at = time.monotonic() + QUIET_SECONDS
    stored: dict[Place, bytes] = {}
    while True:
        stored = await read_all(cluster.namesrv, record)
        bodies = {*stored.values()}
        decided = all(
            body in bodies
            for body, decision in record.decisions.items()
            if decision and body in record.begun
        )
        given = stored.keys() <= record.given.get(READERS, set())
        if (decided and given) or time.monotonic() >= ends_at:
            break
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    summary.stored = len(stored)
    record.check_stored(stored)
    record.check_given(READERS, stored)


def _verify(cluster: SoakCluster, record: Record) -> None:
    """Checks the replicas of the stopped group with ``dledger verify``."""
    done = _dledger(cluster, "verify", *map(str, cluster.replicas()))
    if done.returncode != 0:
        told = done.stdout.splitlines() + done.stderr.splitlines()
        for line in told or [f"dledger verify ended with {done.returncode}"]:
            record.find(f"dledger verify: {line}")


def _dledger(cluster: SoakCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"NAMESRV_ADDR": cluster.namesrv},
    )
