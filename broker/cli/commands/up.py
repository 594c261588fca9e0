"""``dledger up``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from broker.admin.group_health import LEADER
from broker.cli.cluster_admin.cluster_view import GroupView
from broker.cli.commands.status import print_groups
from broker.cli.local_cluster.forked_servers import forking
from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster
from broker.cli.local_cluster.port_layout import DEFAULT_PORTS, GROUPS_MAX, NODES_MAX, Ports
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.cli.terminal.options import (
    add_data,
    add_json,
    data_option,
    port_number,
    print_json,
    whole_number,
)
from broker.cli.terminal.signals import handled_signals, interrupt_on_ending
from broker.cli.terminal.standard_streams import drop_output
from broker.config.node_config import FLUSH_MODES
from store.quoting import quoted

EXAMPLES = """\
  dledger up                                three nodes in ./data, until Ctrl-C
  dledger up --detach && dledger status     in the background; `dledger down` stops it
  dledger up --data /tmp/trial --namesrv-port 0 --port 0 --http-port 0      on any free ports
"""

LOOK_AGAIN_SECONDS = 1.0
"""The end of another command's process does not wake us."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=_count(NODES_MAX), metavar="N", help="default: 3")
    parser.add_argument("--groups", type=_count(GROUPS_MAX), metavar="N", help="default: 1")
    add_data(parser)
    parser.add_argument(
        "--flush",
        choices=FLUSH_MODES,
        help="when a message is acknowledged: on stable storage on a majority (sync, the default), "
        "or in memory on a majority (async)",
    )
    for option, kind, port in (
        ("--namesrv-port", "the NameServer's port", DEFAULT_PORTS.namesrv),
        ("--port", "the first broker's port", DEFAULT_PORTS.remoting),
        ("--http-port", "the first broker's HTTP port", DEFAULT_PORTS.http),
    ):
        parser.add_argument(
            option,
            type=port_number,
            metavar="PORT",
            help=f"{kind} (default: {port}, or as it was; 0: any that is free)",
        )
    parser.add_argument(
        "--detach", action="store_true", help="return when the cluster serves, and let it run"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    interrupt_on_ending()
    cluster = design_cluster(
        args.data, nodes=args.nodes, groups=args.groups, flush=args.flush, ports=_ports(args)
    )
    cluster.require_startable()  # before its files change
    cluster.write()
    stays = False
    try:
        cluster.start(forking(args.command_line))
        groups = wait_until_serving(cluster)
        # Only now wait for signals: a process that starts earlier would inherit the mask.
        awaited = {*handled_signals(), signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        try:
            _print_ready(cluster, groups, args)
        except BrokenPipeError:  # the cluster runs, even if nobody reads this
            drop_output()
        stays = args.detach
        reported = _report_ended(cluster, frozenset())
        if not args.detach:
            stays = _ended_by_others(cluster, awaited, reported)
    finally:
        if not stays:
            cluster.stop()
    return 0


def _ended_by_others(
    cluster: LocalCluster, awaited: set[signal.Signals], reported: frozenset[str]
) -> bool:
    """Waits for a signal, or until nothing runs any more; returns whether nothing runs.

    In that case nothing is left to stop: a process of a moment later belongs to another `up`.
    """
    while cluster.running:
        came = signal.sigtimedwait(awaited, LOOK_AGAIN_SECONDS)
        if came is None or came.si_signo == signal.SIGCHLD:
            reported |= _report_ended(cluster, reported)
            continue
        with suppress(OSError):  # the terminal may be closed
            print("stopping ...", file=sys.stderr)
        return False
    print("all processes have ended, and so does `dledger up`", file=sys.stderr)
    return True


def _print_ready(cluster: LocalCluster, groups: list[GroupView], args: argparse.Namespace) -> None:
    if args.json:
        print_json(
            {
                "data": str(cluster.directory),
                "namesrv": str(cluster.namesrv),
                "groups": [group.to_json() for group in groups],
            }
        )
    else:
        _print_welcome(cluster, groups, detached=args.detach)
    sys.stdout.flush()


def _ports(args: argparse.Namespace) -> Ports | None:
    given = Ports(args.namesrv_port, args.port, args.http_port)
    return None if given == Ports() else given


def _print_welcome(cluster: LocalCluster, groups: list[GroupView], *, detached: bool) -> None:
    print_groups(groups)
    http = next(node.http for group in groups for node in group.nodes if node.role == LEADER)
    print(f"""
NameServer  {cluster.namesrv}        export NAMESRV_ADDR={cluster.namesrv}
HTTP        http://{http}      curl http://{http}/status
Console     http://{http}/     the group live, in a browser
Data        {cluster.directory}
Try         printf 'one\\ntwo\\n' | dledger produce hello
            dledger consume hello --group me --from earliest --count 2
Stop        {f"dledger down{data_option(cluster.directory)}" if detached else "Ctrl-C"}""")


def _report_ended(cluster: LocalCluster, reported: frozenset[str]) -> frozenset[str]:
    """Prints which processes have ended, without those ``reported``; returns their names."""
    ended = [
        process
        for process in cluster.processes
        if process.exit_code is not None and process.name not in reported
    ]
    for process in ended:
        if process.exit_code == 0:  # another command told it to, and has said so
            print(f"{process.name} was stopped", file=sys.stderr)
            continue
        # A node that ended by itself has said what to do first.
        when = "once that is fixed, " if (process.exit_code or 0) > 0 else ""
        print(
            f"{process.describe_end()}\n"
            f"{when}`dledger start {process.name}{data_option(cluster.directory)}` brings it back",
            file=sys.stderr,
        )
    return frozenset(process.name for process in ended)


def _count(maximum: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        number = whole_number(text, 1, maximum)
        if number is None:
            raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number from 1 to {maximum}")
        return number

    return count
