"""``dledger bench``: rates, latencies, CPU time; the time of a failover; the cost of growth; a
steady load."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import click

from broker.bench.worker_client import LoadClient, LoadError
from broker.cli.benchmark.failovers import measure_failovers, restart_ms
from broker.cli.benchmark.growth import CURVES, Growth, measure_curve
from broker.cli.benchmark.grpc_rates import measure_grpc_rates
from broker.cli.benchmark.measured import Bench, Measured, Request, admin_of, say
from broker.cli.benchmark.rates import measure_floor, measure_rates, measure_replays
from broker.cli.benchmark.report import print_measured, ratios
from broker.cli.benchmark.steady import LOG_SIZE_MAX, measure_steady
from broker.cli.local_cluster.temporary_cluster import temporary_cluster
from broker.cli.terminal.name_arguments import name_servers
from broker.cli.terminal.numbers import COUNT, seconds
from broker.cli.terminal.options import DIRECTORY, json_option, profile_in_environment
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.signals import interrupt_on_ending
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import view_groups
from broker.command_error import CommandError, UsageError
from broker.config.node_config import FLUSH_MODES
from store.quoting import quoted

EXAMPLES = """\
  dledger bench                       rates and failover, on three nodes and on a single one
  dledger bench all --full            everything, also growth and a steady load: an hour or so
  dledger bench produce --batch 128 --inflight 4 --seconds 5
  dledger bench produce --namesrv 127.0.0.1:9876        a cluster that runs already
  dledger bench failover --json
  dledger bench produce --secured     with TLS and access control, compared with without
  dledger bench grpc                  RocketMQ 5's protocol beside 4.x's, HTTP, and grpcio alone
  dledger bench steady --seconds 60 --rounds 30         80 % of the peak for half an hour
"""

PRODUCE, CONSUME, FAILOVER, GRPC = "produce", "consume", "failover", "grpc"
GROWTH, STEADY, ALL = "growth", "steady", "all"
REPLICAS = 3
SECONDS_MAX = 3600


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload, which belongs to a part that a user may request."""

    part: str
    measure: Callable[[Bench], None]
    needs_replicas: bool = False
    """Whether it needs a cluster of the benchmark's own, with followers."""


WORKLOADS = (
    Workload(PRODUCE, measure_rates),
    Workload(PRODUCE, measure_floor, needs_replicas=True),
    Workload(CONSUME, measure_replays),
    Workload(GRPC, measure_grpc_rates, needs_replicas=True),
    Workload(FAILOVER, measure_failovers, needs_replicas=True),
)
OWN_ONLY = frozenset({FAILOVER, GROWTH, GRPC, STEADY})
"""Parts that need a cluster of the benchmark's own: they kill brokers, use one group, or leave
topics behind."""


def _seconds(text: str) -> float:
    value = seconds(text)
    if value > SECONDS_MAX:
        raise ValueError(f"{quoted(text)} is more than {SECONDS_MAX} seconds")
    return value


@click.command(cls=Command, examples=EXAMPLES)
@click.argument(
    "part",
    type=click.Choice((PRODUCE, CONSUME, FAILOVER, GRPC, GROWTH, STEADY, ALL)),
    default=ALL,
    help="What to measure (default: all, without growth and steady).",
)
@click.option(
    "--size", type=COUNT, default=1024, metavar="BYTES", help="Size of a message (default: 1024)."
)
@click.option("--batch", type=COUNT, metavar="N", help="Messages in a request.")
@click.option(
    "--inflight",
    type=COUNT,
    metavar="N",
    help="Requests in progress; without --batch too: 128 x 4, and single messages with 1, 32, 256.",
)
@click.option("--seconds", type=_seconds, default=2.0, metavar="S", help="Of a round (default: 2).")
@click.option(
    "--rounds", type=COUNT, default=3, metavar="N", help="Rounds of each median (default: 3)."
)
@click.option(
    "--flush",
    type=click.Choice(FLUSH_MODES),
    default="sync",
    help="sync (default): acknowledged when on stable storage on a majority.",
)
@click.option(
    "--namesrv",
    metavar="ADDR",
    type=name_servers,
    help="Measure that cluster, instead of a temporary one.",
)
@click.option(
    "--dir",
    "directory",
    type=DIRECTORY,
    metavar="DIR",
    help="The directory of temporary clusters, on the disk to measure "
    "(default: the system's directory for temporary files).",
)
@click.option(
    "--full",
    is_flag=True,
    help="Curves of growth one decade further, steady for half an hour, failover with 100 leaders "
    "killed. With `all` also growth and steady.",
)
@click.option(
    "--secured",
    is_flag=True,
    help="Compare with TLS on all ports, peer ports included, and access control.",
)
@json_option
def command(*, output: Output, **options: Any) -> None:
    args = Request(**options)
    if args.namesrv and args.part in OWN_ONLY:
        raise UsageError(f"{args.part} needs a cluster of its own: leave --namesrv out")
    if args.secured and (args.namesrv or args.part in OWN_ONLY):
        raise UsageError("--secured is for produce and consume, on clusters of its own")
    if not args.namesrv:  # the keys of the environment are not those of a temporary cluster
        click.get_current_context().with_resource(profile_in_environment(""))
    interrupt_on_ending()
    with CommandError.instead_of(LoadError):
        if args.namesrv:
            measured, baseline = _measure_running(args, args.namesrv), None
        elif args.secured:
            measured, baseline = Measured(REPLICAS, secured=True), Measured(REPLICAS)
            _measure_in_turn(args, measured, baseline)
        else:
            measured = Measured(REPLICAS)
            baseline = None if args.part in OWN_ONLY else Measured(1)
            _measure_own(args, measured, baseline)
    if not output.document(_document(args, measured, baseline)):
        _print(args, measured, baseline)


def _measure_running(args: Request, namesrv: str) -> Measured:
    groups = run_admin(namesrv, view_groups)
    nodes = [node for group in groups if group.unregistered_seconds is None for node in group.nodes]
    pids = tuple(node.pid for node in nodes if node.pid is not None)
    measured = Measured(len(nodes))
    with LoadClient(namesrv) as client:
        bench = Bench(args, namesrv, client, measured, None, pids)
        for workload in _workloads(args):
            if not workload.needs_replicas:
                workload.measure(bench)
    return measured


def _measure_own(args: Request, measured: Measured, baseline: Measured | None) -> None:
    if workloads := _workloads(args):
        with _own_cluster(args, measured) as bench:
            for workload in workloads:
                workload.measure(bench)
    for curve in _curves(args):
        # On one cluster, each workload would pay for the data of those before.
        with _own_cluster(args, measured) as bench:
            measure_curve(bench, curve, restart_ms, full=args.full)
    if args.part == STEADY or (args.part == ALL and args.full):
        with _own_cluster(args, measured, log_size_max=LOG_SIZE_MAX) as bench:
            measure_steady(bench, full=args.full)
    if baseline is not None:
        with _own_cluster(args, baseline) as bench:
            for workload in workloads:
                if not workload.needs_replicas:
                    workload.measure(bench)


def _measure_in_turn(args: Request, *each_of: Measured) -> None:
    """One short round on each cluster in turn, so that other load of the machine affects all
    alike."""
    once = replace(args, rounds=1)
    turns: list[tuple[Workload, Request]] = []
    for workload in _workloads(args):
        if workload.part == CONSUME:
            turns.append((workload, once))
        elif not workload.needs_replicas:
            shapes = [
                replace(once, batch=each.batch, inflight=each.in_flight) for each in args.shapes
            ]
            turns += [(workload, request) for request in shapes]
    with ExitStack() as running:
        benches = [running.enter_context(_own_cluster(args, each)) for each in each_of]
        for _ in range(args.rounds):
            for workload, request in turns:
                for bench in benches:
                    workload.measure(replace(bench, request=request))


def _workloads(args: Request) -> list[Workload]:
    return [each for each in WORKLOADS if args.part in {each.part, ALL}]


def _curves(args: Request) -> Sequence[Growth]:
    return CURVES if args.part == GROWTH or (args.part == ALL and args.full) else ()


@contextmanager
def _own_cluster(args: Request, measured: Measured, *, log_size_max: int = 0) -> Iterator[Bench]:
    say(f"starting {measured.title}")
    with temporary_cluster(
        args.directory,
        measured.nodes,
        args.flush,
        secured=measured.secured,
        log_size_max=log_size_max,
    ) as cluster:
        namesrv = str(cluster.namesrv)
        with LoadClient(namesrv, admin_of(cluster)) as client:
            yield Bench(args, namesrv, client, measured, cluster)


def _document(args: Request, measured: Measured, baseline: Measured | None) -> dict[str, Any]:
    return {
        "size": args.size,
        "flush": args.flush,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "cores": os.cpu_count(),
        "cluster": measured.to_json(),
        "baseline": None if baseline is None else baseline.to_json(),
        "ratios": {} if baseline is None else ratios(measured.workloads, baseline.workloads),
        "floor_ratios": ratios(measured.workloads, measured.floor),
    }


def _print(args: Request, measured: Measured, baseline: Measured | None) -> None:
    acknowledged = "fsynced on a majority" if args.flush == "sync" else "in memory on a majority"
    flush = "" if args.namesrv else f", acknowledged when {acknowledged}"
    print(f"{args.size}-byte messages{flush}; {os.cpu_count()} cores; CPU s are per 100,000;")
    print("DISK: bytes that all servers together wrote for each byte of a body\n")
    print_measured(measured, baseline)
