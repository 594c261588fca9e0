"""``dledger status``."""

from __future__ import annotations

import sys
import time

import click

from broker.cli.commands.health import are_healthy
from broker.cli.terminal.numbers import seconds
from broker.cli.terminal.options import cluster_options
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Command
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import DOWN, GroupView, view_groups
from broker.command_error import CommandError
from broker.config.security_config import EXPOSED
from broker.exit_codes import EXIT_FAILED

EXAMPLES = """\
  dledger status
  dledger status --namesrv 10.0.0.1:9876 --json
  dledger status --watch
"""
NOTES = """\
Exits 1 if a broker group has no leader that serves or no majority; `dledger health` says why.
"""


@click.command(cls=Command, examples=EXAMPLES, notes=NOTES)
@click.option(
    "--watch",
    metavar="[S]",
    is_flag=False,
    flag_value="2",
    type=seconds,
    help="Show it again every S seconds (default: 2), until Ctrl-C.",
)
@cluster_options
def command(watch: float | None, namesrv: str, output: Output) -> int:
    code = _show(namesrv, output)
    while watch is not None:
        sys.stdout.flush()
        time.sleep(watch)
        if sys.stdout.isatty():
            click.clear()
        try:
            _show(namesrv, output)
        except CommandError as error:  # it answered before, so it may come back
            print(error, file=sys.stderr)
    return code


def _show(namesrv: str, output: Output) -> int:
    groups = run_admin(namesrv, view_groups)
    if output.document({"groups": [group.to_json() for group in groups]}):
        pass
    elif groups:
        print_groups(groups)
    else:
        print(f"no broker is registered at {namesrv}")
    return 0 if are_healthy(groups) else EXIT_FAILED


def print_groups(groups: list[GroupView]) -> None:
    """Prints one line for each node. The lag is counted in entries behind the leader."""
    for group in groups:
        leader = group.leader_node
        if group.unregistered_seconds is not None:
            print(
                f"{group.group}: no node is registered, for {group.unregistered_seconds:.0f} s "
                "now; start its nodes"
            )
        elif leader is not None:
            state = "leads" if group.serves else "leads, but does not serve yet,"
            print(f"{group.group}: {leader.node} at {leader.address} {state} in term {group.term}")
        if group.health is not None and group.unregistered_seconds is None and not group.healthy:
            print(f"{group.group}: {group.health.problem}")
        if group.joint:
            print(f"{group.group}: a change of the voters is in progress")
    _print_table(groups)
    running = [node for group in groups for node in group.nodes if node.role != DOWN]
    if len({node.version for node in running}) > 1:
        which = (f"{node.node} {node.version or 'unknown'}" for node in running)
        print(f"versions differ: {', '.join(which)}")
    for node in (node for group in groups for node in group.nodes):
        if node.disk == "full":
            print(
                f"{node.node}: its disk is full, by disk_full_percent and disk_enough_bytes of its "
                "node.toml; messages are refused while it leads"
            )
        if node.refilling:
            print(f"{node.node}: is being refilled by its peers, entry {node.refilling}")
        if node.security.get("exposed"):
            print(f"{node.node}: {EXPOSED}")
        for told in node.damage:
            print(f"{node.node}: DAMAGE {told}")
        for told in node.repaired:
            print(f"{node.node}: was damaged and is repaired: {told}")


def _print_table(groups: list[GroupView]) -> None:
    print_table(
        (
            "NODE",
            "ROLE",
            "MEMBER",
            "TERM",
            "LAST",
            "COMMIT",
            "APPLIED",
            "LAG",
            "ADDRESS",
            "HTTP",
            "GRPC",
            "PID",
        ),
        [
            (
                node.node,
                node.role,
                node.member,
                node.term,
                node.last_index,
                node.commit_index,
                node.applied_index,
                node.lag_entries,
                node.address,
                node.http,
                node.grpc,
                node.pid,
            )
            for group in groups
            for node in group.nodes
        ],
    )
