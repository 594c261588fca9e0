"""``dledger up``."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from broker.admin.group_health import LEADER
from broker.cli.commands.status import print_groups
from broker.cli.local_cluster.forked_servers import fork
from broker.cli.local_cluster.local_cluster import LocalCluster, design_cluster
from broker.cli.local_cluster.port_layout import GROUPS_MAX, NODES_MAX, Ports
from broker.cli.local_cluster.port_options import port_options
from broker.cli.local_cluster.readiness import wait_until_serving
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import data_hint, data_option, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command, CommandLine
from broker.cli.terminal.progress import waiting
from broker.cli.terminal.signals import handled_signals, interrupt_on_ending
from broker.cli.terminal.standard_streams import drop_output
from broker.cluster_admin.cluster_view import GroupView
from broker.config.node_config import FLUSH_MODES

EXAMPLES = """\
  dledger up                                three nodes in ./data, until Ctrl-C
  dledger up --detach && dledger status     in the background; `dledger down` stops it
  dledger up --data /tmp/trial --namesrv-port 0 --port 0 --http-port 0      on any free ports
"""

LOOK_AGAIN_SECONDS = 1.0
"""The interval of checks for ended processes: the end of another command's process sends no
signal."""


@click.command(cls=Command, examples=EXAMPLES)
@click.option("--nodes", type=WholeRange(1, NODES_MAX), metavar="N", help="Default: 3.")
@click.option("--groups", type=WholeRange(1, GROUPS_MAX), metavar="N", help="Default: 1.")
@data_option
@click.option(
    "--flush",
    type=click.Choice(FLUSH_MODES),
    help="When a message is acknowledged: on stable storage on a majority (sync, the default), "
    "or in memory on a majority (async).",
)
@port_options
@click.option("--detach", is_flag=True, help="Return once the cluster serves; it keeps running.")
@json_option
@click.pass_obj
def command(
    command_line: CommandLine,
    /,
    *,
    nodes: int | None,
    groups: int | None,
    data: Path,
    flush: str | None,
    detach: bool,
    output: Output,
    **ports: int | None,
) -> None:
    interrupt_on_ending()
    given = Ports(**ports)
    changed = None if given == Ports() else given
    cluster = design_cluster(data, nodes=nodes, groups=groups, flush=flush, ports=changed)
    cluster.require_startable()  # before its files change
    cluster.write()
    stays = False
    try:
        cluster.start(partial(fork, command_line))
        with waiting(f"starting {len(cluster.processes)} processes"):
            serving = wait_until_serving(cluster)
        # Only now wait for signals: a process that starts earlier would inherit the mask.
        awaited = {*handled_signals(), signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        try:
            _print_ready(cluster, serving, output, detached=detach)
        except BrokenPipeError:  # the cluster runs even if the output is closed
            drop_output()
        stays = detach
        reported = _report_ended(cluster, frozenset())
        if not detach:
            stays = _ended_by_others(cluster, awaited, reported)
    finally:
        if not stays:
            cluster.stop()


def _ended_by_others(
    cluster: LocalCluster, awaited: set[signal.Signals], reported: frozenset[str]
) -> bool:
    """Waits for a signal, or until no process runs; returns whether no process runs.

    Then nothing is left to stop: a process that starts later belongs to another `up`.
    """
    while cluster.running:
        came = signal.sigtimedwait(awaited, LOOK_AGAIN_SECONDS)
        if came is None or came.si_signo == signal.SIGCHLD:
            reported |= _report_ended(cluster, reported)
            continue
        with suppress(OSError):  # the terminal may be closed
            print("stopping ...", file=sys.stderr)
        return False
    print("all processes have ended, so `dledger up` ends", file=sys.stderr)
    return True


def _print_ready(
    cluster: LocalCluster, groups: list[GroupView], output: Output, *, detached: bool
) -> None:
    document = {
        "data": str(cluster.directory),
        "namesrv": str(cluster.namesrv),
        "groups": [group.to_json() for group in groups],
    }
    if not output.document(document):
        _print_welcome(cluster, groups, detached=detached)
    sys.stdout.flush()


def _print_welcome(cluster: LocalCluster, groups: list[GroupView], *, detached: bool) -> None:
    print_groups(groups)
    http = next(node.http for group in groups for node in group.nodes if node.role == LEADER)
    print(f"""
NameServer  {cluster.namesrv}        export NAMESRV_ADDR={cluster.namesrv}
HTTP        http://{http}      curl http://{http}/status
Console     http://{http}/     shows and changes the cluster, in a browser
Data        {cluster.directory}
Try         printf 'one\\ntwo\\n' | dledger produce hello
            dledger consume hello --group me --from earliest --count 2
Stop        {f"dledger down{data_hint(cluster.directory)}" if detached else "Ctrl-C"}""")


def _report_ended(cluster: LocalCluster, reported: frozenset[str]) -> frozenset[str]:
    """Prints the ended processes that are not in ``reported``; returns the names of all ended
    ones."""
    ended = [
        process
        for process in cluster.processes
        if process.exit_code is not None and process.name not in reported
    ]
    for process in ended:
        if process.exit_code == 0:  # another command stopped it
            print(f"{process.name} was stopped", file=sys.stderr)
            continue
        # A node that ended by itself has printed what to fix.
        when = "once that is fixed, " if (process.exit_code or 0) > 0 else ""
        print(
            f"{process.describe_end()}\n"
            f"{when}`dledger start {process.name}{data_hint(cluster.directory)}` starts it again",
            file=sys.stderr,
        )
    return frozenset(process.name for process in ended)
