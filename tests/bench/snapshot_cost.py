"""The cost of snapshots to a group at work: ``python -m tests.bench.snapshot_cost``.

Starts a cluster of its own and lets one producer after the other load it, every second one while
a snapshot of all nodes is taken. Prints both medians and their ratio.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from broker.cli.local_cluster.temporary_cluster import temporary_cluster
from broker.cli.terminal.options import DIRECTORY


def dledger(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "broker", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rate_of(load: subprocess.Popen[str]) -> float:
    """Acknowledged messages per second."""
    output, _errors = load.communicate()
    (workload,) = json.loads(output)["cluster"]["workloads"]
    return float(workload["messages_per_second"])


@click.command
@click.option("--rounds", type=int, default=5, help="Of each (default: 5).")
@click.option("--seconds", "length", type=int, default=8, help="Of a round (default: 8).")
@click.option("--dir", "directory", type=DIRECTORY, help="Where data and snapshots are written.")
def main(rounds: int, length: int, directory: Path | None) -> None:
    rates: dict[bool, list[float]] = {False: [], True: []}
    seconds: list[float] = []
    with (
        temporary_cluster(directory, 3, "sync") as cluster,
        TemporaryDirectory(prefix="dledger-snapshots-", dir=directory) as out,
    ):
        namesrv = ("--namesrv", str(cluster.namesrv))
        for number in range(2 * rounds):
            with_snapshot = bool(number % 2)
            load = dledger(
                "bench", "produce", *namesrv, "--batch", "128", "--inflight", "4",
                "--seconds", str(length), "--rounds", "1", "--json",
            )  # fmt: skip
            if with_snapshot:
                begin = time.perf_counter()
                done = dledger("snapshot", "--out", f"{out}/{number}", *namesrv)
                done.communicate()
                if done.returncode:
                    raise SystemExit(done.returncode)
                seconds.append(time.perf_counter() - begin)
            rates[with_snapshot].append(rate_of(load))
    without, during = (statistics.median(rates[key]) for key in (False, True))
    print(f"without a snapshot: {without:,.0f} messages/s (median of {rounds})")
    print(f"during a snapshot:  {during:,.0f} messages/s; {during / without:.3f} of it")
    print(f"a snapshot of three nodes took {statistics.median(seconds):.1f} s (median)")


if __name__ == "__main__":
    main()
