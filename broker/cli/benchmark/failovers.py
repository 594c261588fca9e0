"""How long a client that sends one message at a time waits when brokers die or stop answering."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from broker.bench.failover import PAUSE_SECONDS, Disturb, FailoverResult, waits_ms
from broker.bench.jobs import ProbeJob, SteadyJob
from broker.bench.worker_client import LoadClient
from broker.cli.benchmark.measured import Bench, admin_of, say
from broker.cli.benchmark.steady import SHARE, measure_peak
from broker.cli.local_cluster.local_cluster import LocalCluster
from broker.cli.local_cluster.managed_processes import DLEDGER, end_processes
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.command_error import CommandError

LEADER_ROUNDS, LEADER_ROUNDS_FULL = 10, 100
SILENT_ROUNDS = 5
ALL_ROUNDS = 3
LOAD_ROUND_SECONDS, LOAD_ROUNDS = 60.0, 1_000
"""More than any number of faults takes. A round is longer than the load may be behind."""
LOADED_PAUSE_SECONDS = 5.0
"""In the place of the usual second: what waits at 80 % of the peak, because a node had to start and
to catch up, must be gone before the next fault."""


def measure_failovers(bench: Bench) -> None:
    """Kills leaders, pauses leaders so that their connections stay open, and kills whole groups.
    The first two also while another client sends at 80 % of the peak."""
    rounds = LEADER_ROUNDS_FULL if bench.request.full else LEADER_ROUNDS
    topic = bench.new_topic()
    load = SHARE * measure_peak(bench, topic)
    with _disturbing(bench) as faults:
        say("killing leaders")
        killed = faults.waits(faults.kill_leader, rounds)
        say("silencing leaders")
        silent = faults.waits(faults.silence_leader, SILENT_ROUNDS)
        say("killing all")
        all_killed = faults.waits(faults.kill_all, ALL_ROUNDS)
        delays = zip(all_killed, faults.start_delays_ms, strict=True)
        started = [wait - delay for wait, delay in delays]
        faults.pause_seconds = LOADED_PAUSE_SECONDS
        with _loaded(bench, topic, load):
            say("killing leaders under load")
            loaded_killed = faults.waits(faults.kill_leader, rounds)
            say("silencing leaders under load")
            loaded_silent = faults.waits(faults.silence_leader, SILENT_ROUNDS)
    bench.delete_topic(topic)
    bench.measured.failover = FailoverResult(
        killed, silent, all_killed, started, load, loaded_killed, loaded_silent
    )


@contextmanager
def _loaded(bench: Bench, topic: str, rate: float) -> Iterator[None]:
    """Another client sends at that rate. At the end it must have kept up."""
    if bench.own is None:
        raise CommandError("faults need a cluster of the benchmark's own")
    job = SteadyJob((topic,), bench.request.size, rate, 0.0, LOAD_ROUND_SECONDS, LOAD_ROUNDS, ())
    with LoadClient(bench.namesrv, admin_of(bench.own)) as client:
        client.begin_steady(job)
        yield
        client.abandon()


def restart_ms(bench: Bench) -> float:
    """The time from the restart of a group whose nodes were all killed to the next
    acknowledgement."""
    with _disturbing(bench) as faults:
        (wait,) = faults.waits(faults.kill_all, 1)
    return wait


@contextmanager
def _disturbing(bench: Bench) -> Iterator[Faults]:
    """Faults for a client that sends all the time. At the end the cluster is repaired."""
    if bench.own is None:
        raise CommandError("faults need a cluster of the benchmark's own")
    faults = Faults(bench.own, bench.client)
    topic = bench.new_topic()
    try:
        bench.client.start_probe(ProbeJob(topic, bench.request.size))
        bench.client.first_after(time.perf_counter() + PAUSE_SECONDS)
        yield faults
        bench.client.stop_probe()
    finally:
        faults.end()
    bench.delete_topic(topic)


class Faults:
    """Causes faults. Each returns the time (``time.perf_counter``) from which the wait counts."""

    def __init__(self, cluster: LocalCluster, client: LoadClient) -> None:
        self._cluster = cluster
        self._client = client
        self._brokers = [node.process for node in cluster.nodes.values()]
        self._started: list[subprocess.Popen[bytes]] = []
        self._silent: int | None = None
        self.pause_seconds = PAUSE_SECONDS
        """Without a fault, after each round."""
        self._restarted_at: float | None = None
        self.start_delays_ms: list[float] = []
        """For each time that all were killed: from the command that starts them to the first
        process. The command itself has to start first."""

    def waits(self, disturb: Disturb, rounds: int) -> list[float]:
        """The milliseconds to the next acknowledgement, for each round."""
        return waits_ms(disturb, self._repair, self._client.first_after, rounds)

    def kill_leader(self) -> float:
        """As `kill -9`: the kernel closes its connections."""
        leader = self._leader()
        moment = time.perf_counter()
        end_processes([self._cluster.process(leader)], kill=True)
        return moment

    def silence_leader(self) -> float:
        """As if the leader's machine had lost its power or network: no connection is closed."""
        pid = self._cluster.process(self._leader()).pid
        if pid is None:
            raise CommandError("the leader has ended")
        moment = time.perf_counter()
        os.kill(pid, signal.SIGSTOP)
        self._silent = pid
        return moment

    def kill_all(self) -> float:
        """Kills every broker and starts all again."""
        end_processes(self._brokers, kill=True)
        self._restarted_at = moment = time.perf_counter()
        self._start_missing()
        return moment

    def end(self) -> None:
        """Ends everything that was begun."""
        self._let_go_on()
        for command in self._started:
            # It would start brokers after the others were ended.
            command.terminate()
            command.wait()

    def _leader(self) -> str:
        return wait_until_serving(self._cluster)[0].leader or ""

    def _let_go_on(self) -> None:
        if self._silent is not None:
            os.kill(self._silent, signal.SIGCONT)
            self._silent = None

    def _start_missing(self) -> None:
        # As an operator would: with a new command.
        missing = [process.name for process in self._brokers if process.pid is None]
        if missing:
            command = [*DLEDGER, "start", *missing, "--data", str(self._cluster.directory)]
            self._started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def _note_starts(self) -> None:
        moment, self._restarted_at = self._restarted_at, None
        if moment is not None:
            starts = [each.started_at for each in self._brokers]
            first = min((at for at in starts if at is not None), default=moment)
            self.start_delays_ms.append(1000 * max(0.0, first - moment))

    def _repair(self) -> None:
        """Restarts missing brokers, and waits until the cluster serves, as before each round."""
        self._let_go_on()
        self._note_starts()
        if not self._started:
            self._start_missing()
        while self._started:
            if self._started[-1].wait() != 0:
                raise CommandError("brokers that were killed did not start again; see above")
            self._started.pop()
        wait_until_serving(self._cluster)
        self._client.first_after(time.perf_counter() + self.pause_seconds)
