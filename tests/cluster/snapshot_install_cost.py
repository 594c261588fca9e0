"""Measures how much a refill slows down the acknowledgements of the leader.

Run by hand: ``python -m tests.cluster.snapshot_install_cost DIRECTORY [MIB] [SECONDS]``. One of
three members is away until the entries that it needs have expired. Then single messages are sent,
32 at a time, in rounds with and without the refill by turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from broker.cli.local_cluster.managed_processes import execute
from tests.cluster.running_cluster import RunningCluster, start_cluster

SEGMENT = 16 << 20
ROUNDS = 3
START_SECONDS = 4.0
"""After this time, a new process takes no more CPU than later."""


def measure(cluster: RunningCluster, seconds: float) -> dict[str, Any]:
    done = cluster.dledger(
        "bench",
        "produce",
        "--inflight",
        "32",
        "--seconds",
        str(seconds),
        "--rounds",
        "1",
        "--namesrv",
        cluster.namesrv,
        "--json",
    )
    workload: dict[str, Any] = json.loads(done.stdout)["cluster"]["workloads"][0]
    return workload


def fill(cluster: RunningCluster, mib: int) -> None:
    line = "x" * 16_000
    for _ in range(-(-mib // 64)):
        cluster.dledger("produce", "filler", "--batch", "32", stdin=f"{line}\n" * 4096)


def main(directory: str, mib: int, seconds: float) -> None:
    cluster = start_cluster(
        Path(directory) / "data",
        starter=execute,
        segment_size=SEGMENT,
        checkpoint_seconds=1,
        log_size_max=mib << 20,
    )
    try:
        cluster.dledger("topic", "create", "filler", "-c", "DefaultCluster", "--queues", "4")
        leader = cluster.leader()
        away = next(node for node in cluster.nodes if node != leader)
        cluster.kill(away)
        fill(cluster, mib + 4 * (SEGMENT >> 20))
        commitlog = cluster.data(leader) / "commitlog"
        while min(path.name for path in commitlog.iterdir()) == "0" * 20:
            time.sleep(0.5)
        found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for _ in range(ROUNDS):
            found[False].append(measure(cluster, seconds))
            cluster.start(away)
            while not (cluster.data(away) / "refill" / "plan").exists():
                time.sleep(0.05)
            time.sleep(START_SECONDS)
            found[True].append(measure(cluster, seconds))
            refilling = (cluster.data(away) / "refill").exists()
            cluster.kill(away)
            if not refilling:
                print("the refill ended too soon; take more MiB or fewer seconds")
                return
        for name in ("messages_per_second", "p50_ms", "p99_ms"):
            without, beside = (
                statistics.median(round_[name] for round_ in found[refill])
                for refill in (False, True)
            )
            change = 100 * (beside / without - 1)
            print(f"{name}: {without:.1f} without, {beside:.1f} beside a refill: {change:+.1f} %")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(sys.argv[1], int((sys.argv[2:] or ["1024"])[0]), float((sys.argv[3:] or ["6"])[0]))
