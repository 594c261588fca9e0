"""``dledger bench``: rates, latencies and CPU time, and how long a failover takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click

from broker.bench.failover import FailoverResult
from broker.bench.grpc_workloads import GrpcPlace, grpc_share, measure_grpc
from broker.bench.jobs import (
    FillJob,
    LoadShape,
    ProbeJob,
    ProduceJob,
    ReplayJob,
    Summary,
    summarise,
)
from broker.bench.worker_client import LoadClient, LoadError
from broker.cli.local_cluster.bench_cluster import measure_failover, server_pids, temporary_cluster
from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.name_arguments import name_servers
from broker.cli.terminal.numbers import COUNT, seconds
from broker.cli.terminal.options import DEFAULT_CLUSTER, DIRECTORY, json_option
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Command
from broker.cli.terminal.signals import interrupt_on_ending
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import view_groups
from broker.cluster_admin.topics import create_topic, delete_topic
from broker.config.node_config import FLUSH_MODES
from store.quoting import quoted

EXAMPLES = """\
  dledger bench                       everything, on three nodes of its own and on a single one
  dledger bench produce --batch 128 --inflight 4 --seconds 5
  dledger bench produce --namesrv 127.0.0.1:9876        a cluster that runs already
  dledger bench failover --json
  dledger bench grpc                  RocketMQ 5's protocol beside 4.x's, and grpcio's own part
"""

PRODUCE, CONSUME, FAILOVER, GRPC, ALL = "produce", "consume", "failover", "grpc", "all"
LOAD_SHAPES = (LoadShape(128, 4), LoadShape(1, 1), LoadShape(1, 32), LoadShape(1, 256))
QUEUES = 8
REPLICAS = 3
GRPC_INFLIGHT = 32
WARM_UP_SECONDS = 1.0
REPLAY_MESSAGES = 256 * 1024
REPLAY = "replay"
SECONDS_MAX = 3600


def _seconds(text: str) -> float:
    value = seconds(text)
    if value > SECONDS_MAX:
        raise ValueError(f"{quoted(text)} is more than {SECONDS_MAX} seconds")
    return value


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured, and how, as the options say."""

    what: str
    size: int
    batch: int | None
    inflight: int | None
    seconds: float
    rounds: int
    flush: str
    namesrv: str | None
    directory: Path | None


@dataclass(slots=True)
class Measured:
    """The results of one cluster."""

    nodes: int
    workloads: list[Summary] = field(default_factory=list)
    failover: FailoverResult | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "workloads": [summary.to_json() for summary in self.workloads],
            "failover": None if self.failover is None else self.failover.to_json(),
        }


@click.command(cls=Command, examples=EXAMPLES)
@click.argument(
    "what",
    type=click.Choice((PRODUCE, CONSUME, FAILOVER, GRPC, ALL)),
    default=ALL,
    help="What to measure (default: all, which is without grpc).",
)
@click.option(
    "--size", type=COUNT, default=1024, metavar="BYTES", help="Of a message (default: 1024)."
)
@click.option("--batch", type=COUNT, metavar="N", help="Messages in a request.")
@click.option(
    "--inflight",
    type=COUNT,
    metavar="N",
    help="Requests under way; with neither: 128 x 4, and single ones with 1, 32 and 256.",
)
@click.option("--seconds", type=_seconds, default=2.0, metavar="S", help="Of a round (default: 2).")
@click.option(
    "--rounds", type=COUNT, default=3, metavar="N", help="Medians are of these (default: 3)."
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
    help="Measure the cluster there, and not one made for this.",
)
@click.option(
    "--dir",
    "directory",
    type=DIRECTORY,
    metavar="DIR",
    help="Where the temporary clusters keep their data: a directory on the disk to measure "
    "(default: the system's directory for temporary files).",
)
@json_option
def command(*, output: Output, **options: Any) -> None:
    args = Request(**options)
    if args.namesrv and args.what == FAILOVER:
        raise UsageError("failover kills brokers, so it makes its own: leave --namesrv out")
    interrupt_on_ending()
    try:
        if args.namesrv:
            measured, baseline = _measure_running(args, args.namesrv), None
        else:
            measured = _measure_own(args, REPLICAS)
            baseline = None if args.what in {FAILOVER, GRPC} else _measure_own(args, 1)
    except LoadError as error:
        raise CommandError(str(error)) from error
    if not output.document(_document(args, measured, baseline)):
        _print(args, measured, baseline)


def _measure_running(args: Request, namesrv: str) -> Measured:
    groups = run_admin(namesrv, view_groups)
    nodes = [node for group in groups if group.gone_seconds is None for node in group.nodes]
    pids = tuple(node.pid for node in nodes if node.pid is not None)
    measured = Measured(len(nodes))
    with LoadClient(namesrv) as client:
        _measure_rates(args, namesrv, pids, client, measured)
    return measured


def _measure_own(args: Request, nodes: int) -> Measured:
    measured = Measured(nodes)
    with ExitStack() as stack:
        _say(f"starting {nodes} node{'s' if nodes > 1 else ''}")
        cluster = stack.enter_context(temporary_cluster(args.directory, nodes, args.flush))
        namesrv = str(cluster.namesrv)
        client = stack.enter_context(LoadClient(namesrv))
        _measure_rates(args, namesrv, server_pids(cluster), client, measured)
        if args.what in {FAILOVER, ALL} and nodes > 1:
            _say("killing leaders")
            topic = _new_topic(namesrv)
            measured.failover = measure_failover(cluster, client, ProbeJob(topic, args.size))
    return measured


def _measure_rates(
    args: Request,
    namesrv: str,
    pids: tuple[int, ...],
    client: LoadClient,
    measured: Measured,
) -> None:
    if args.what in {PRODUCE, ALL}:
        topic = _new_topic(namesrv)
        for shape in _shapes(args):
            _say(f"{measured.nodes} node(s): {shape.name}")
            job = ProduceJob(
                topic, args.size, shape, WARM_UP_SECONDS, args.seconds, args.rounds, pids
            )
            measured.workloads.append(summarise(shape.name, client.measure(job)))
        run_admin(namesrv, lambda admin: delete_topic(admin, topic))
    if args.what == GRPC:
        _measure_grpc(args, namesrv, pids, client, measured)
    if args.what in {CONSUME, ALL}:
        _say(f"{measured.nodes} node(s): {REPLAY}")
        topic = _new_topic(namesrv)
        client.fill(FillJob(topic, args.size, REPLAY_MESSAGES))
        rounds = client.measure(ReplayJob(topic, REPLAY_MESSAGES, args.rounds, pids))
        measured.workloads.append(summarise(REPLAY, rounds))
        run_admin(namesrv, lambda admin: delete_topic(admin, topic))


def _measure_grpc(
    args: Request,
    namesrv: str,
    pids: tuple[int, ...],
    client: LoadClient,
    measured: Measured,
) -> None:
    nodes = [node for group in run_admin(namesrv, view_groups) for node in group.nodes]
    leaders = [node.grpc for node in nodes if node.role == "leader" and node.grpc is not None]
    if len(leaders) != 1:
        raise CommandError("the cluster must have one group, whose leader serves gRPC")
    topics = [_new_topic(namesrv), _new_topic(namesrv)]
    shape = LoadShape(1, args.inflight or GRPC_INFLIGHT)
    job = ProduceJob(topics[0], args.size, shape, WARM_UP_SECONDS, args.seconds, args.rounds, pids)
    place = GrpcPlace(leaders[0], pids)
    measured.workloads += measure_grpc(client, place, job, lambda: topics[1], _say)
    for topic in topics:
        run_admin(namesrv, partial(delete_topic, topic=topic))


def _shapes(args: Request) -> Sequence[LoadShape]:
    if args.batch is None and args.inflight is None:
        return LOAD_SHAPES
    batch = args.batch or 1
    return (LoadShape(batch, args.inflight or (1 if batch == 1 else 4)),)


def _new_topic(namesrv: str) -> str:
    """A new topic, so that those of a running cluster stay as they are."""
    topic = f"dledger-bench-{Random().getrandbits(40):010x}"
    run_admin(
        namesrv,
        lambda admin: create_topic(
            admin, topic, queues=QUEUES, broker=None, cluster=DEFAULT_CLUSTER
        ),
    )
    return topic


def _ratios(measured: Measured, baseline: Measured | None) -> dict[str, float]:
    """Of the rates, replicated to unreplicated."""
    alone = {} if baseline is None else {each.name: each for each in baseline.workloads}
    return {
        each.name: each.messages_per_second / alone[each.name].messages_per_second
        for each in measured.workloads
        if each.name in alone
    }


def _document(args: Request, measured: Measured, baseline: Measured | None) -> dict[str, Any]:
    return {
        "size": args.size,
        "flush": args.flush,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "cores": os.cpu_count(),
        "cluster": measured.to_json(),
        "baseline": None if baseline is None else baseline.to_json(),
        "ratios": _ratios(measured, baseline),
    }


def _print(args: Request, measured: Measured, baseline: Measured | None) -> None:
    acknowledged = "fsynced on a majority" if args.flush == "sync" else "in memory on a majority"
    flush = "" if args.namesrv else f", acknowledged when {acknowledged}"
    print(f"{args.size}-byte messages{flush}; {os.cpu_count()} cores; CPU s are per 100,000\n")
    for each in (measured, baseline):
        if each is not None and each.workloads:
            print(f"{each.nodes} node{'s' if each.nodes > 1 else ''}")
            _print_workloads(each.workloads)
            print()
    if args.what == GRPC:
        share = grpc_share(measured.workloads)
        print(f"grpcio's own part of the CPU seconds of the servers for a send: {share:.0%}")
    for name, ratio in _ratios(measured, baseline).items():
        print(f"replicated / unreplicated, {name}: {ratio:.2f}")
    if measured.failover is not None:
        result = measured.failover.to_json()
        for title, key in (
            ("leader killed, to the next acknowledgement", "leader_killed"),
            ("all killed, from their restart to the next acknowledgement", "all_killed"),
        ):
            values = " ".join(f"{value:.0f}" for value in result[f"{key}_ms"])
            print(f"{title}: median {result[f'{key}_median_ms']:.0f} ms ({values})")


def _print_workloads(workloads: Sequence[Summary]) -> None:
    print_table(
        ("WORKLOAD", "MSG/S", "RANGE", "P50 MS", "P99 MS", "CPU S", "SERVERS", "CLIENT"),
        [
            (
                each.name,
                f"{each.messages_per_second:,.0f}",
                f"{each.slowest:,.0f}-{each.fastest:,.0f}",
                None if each.p50_ms is None else f"{each.p50_ms:.2f}",
                None if each.p99_ms is None else f"{each.p99_ms:.2f}",
                f"{each.cpu_seconds_per_100k:.2f}",
                f"{each.server_cpu_seconds_per_100k:.2f}",
                f"{each.client_cpu_seconds_per_100k:.2f}",
            )
            for each in workloads
        ],
    )


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"{what} ...", file=sys.stderr)
