"""The clusters that `dledger bench` measures: made for it in a temporary directory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from broker.bench.failover import PAUSE_SECONDS, FailoverResult, waits_ms
from broker.bench.jobs import ProbeJob
from broker.bench.worker_client import LoadClient
from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster
from broker.cli.local_cluster.managed_processes import DLEDGER, end_processes
from broker.cli.local_cluster.port_layout import Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.cli.terminal.command_error import CommandError, UsageError

LEADER_ROUNDS = 10
ALL_ROUNDS = 3


@contextmanager
def temporary_cluster(parent: Path | None, nodes: int, flush: str) -> Iterator[LocalCluster]:
    """One group of ``nodes`` brokers that serves; afterwards nothing is left of it.

    Raises :class:`UsageError` if ``parent`` cannot be used.
    """
    try:
        temporary = TemporaryDirectory(prefix="dledger-bench-", dir=parent)
    except OSError as error:
        raise UsageError(
            f"no directory can be made in {parent or gettempdir()}: {error.strerror}; "
            "choose another with --dir"
        ) from error
    with temporary as directory:
        cluster = design_cluster(
            Path(directory), nodes=nodes, flush=flush, ports=Ports(namesrv=0, remoting=0, http=0)
        ).write()
        try:
            cluster.start()
            wait_until_serving(cluster)
            yield cluster
        finally:
            end_processes(cluster.processes, kill=True)


def server_pids(cluster: LocalCluster) -> tuple[int, ...]:
    """Every process of the cluster that runs, the NameServer's too."""
    return tuple(pid for process in cluster.processes if (pid := process.pid) is not None)


def measure_failover(cluster: LocalCluster, client: LoadClient, job: ProbeJob) -> FailoverResult:
    """Kills leaders, and then whole groups, under a client that sends one message at a time."""
    brokers = [node.process for node in cluster.nodes.values()]
    started: list[subprocess.Popen[bytes]] = []

    def first_after_pause() -> None:
        client.first_after(time.perf_counter() + PAUSE_SECONDS)

    def kill_leader() -> float:
        leader = wait_until_serving(cluster)[0].leader or ""
        moment = time.perf_counter()
        end_processes([cluster.process(leader)], kill=True)
        return moment

    def kill_all() -> float:
        end_processes(brokers, kill=True)
        moment = time.perf_counter()
        start_missing()
        return moment

    def start_missing() -> None:
        # As an operator would: with a new command that does everything.
        missing = [process.name for process in brokers if process.pid is None]
        command = [*DLEDGER, "start", *missing, "--data", str(cluster.directory)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def repair_leader() -> None:
        start_missing()
        repair_all()

    def repair_all() -> None:
        while started:
            if started[-1].wait() != 0:
                raise CommandError("brokers that were killed did not start again; see above")
            started.pop()
        wait_until_serving(cluster)
        first_after_pause()

    try:
        client.start_probe(job)
        first_after_pause()
        leader_killed = waits_ms(kill_leader, repair_leader, client.first_after, LEADER_ROUNDS)
        all_killed = waits_ms(kill_all, repair_all, client.first_after, ALL_ROUNDS)
        client.stop_probe()
    finally:
        for command in started:
            # It would start brokers when the others have been ended.
            command.terminate()
            command.wait()
    return FailoverResult(leader_killed, all_killed)
