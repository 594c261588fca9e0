"""``dledger health``."""

from __future__ import annotations

import click

from broker.cli.terminal.options import cluster_options
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import GroupView, view_groups
from broker.exit_codes import EXIT_FAILED

EXAMPLES = """\
  dledger health                                   for people; scripts use the exit code
  dledger health --namesrv 10.0.0.1:9876 --json
"""
NOTES = """\
Exits 0 if every broker group has a leader that serves and a majority that follows it, else 1.
"""


@click.command(cls=Command, examples=EXAMPLES, notes=NOTES)
@cluster_options
def command(namesrv: str, output: Output) -> int:
    groups = run_admin(namesrv, view_groups)
    healthy = are_healthy(groups)
    found = [group.health for group in groups if group.health is not None]
    document = {
        "healthy": healthy,
        "may_lose": min((health.may_lose for health in found), default=0),
        "groups": [health.to_json() for health in found],
    }
    if not output.document(document):
        for group in groups:
            print(_line(group))
        if not groups:
            print(f"no broker is registered at {namesrv}")
    return 0 if healthy else EXIT_FAILED


def are_healthy(groups: list[GroupView]) -> bool:
    """Whether there are groups, and each has a leader that serves and a majority."""
    return bool(groups) and all(group.healthy for group in groups)


def _line(group: GroupView) -> str:
    health = group.health
    if health is None or not health.healthy:
        missing = "" if health is None else ", ".join(health.missing_nodes)
        start = f"; not in touch: {missing}" if missing else ""
        return f"{group.group}: NOT healthy, {'' if health is None else health.problem}{start}"
    more = f"{health.may_lose} more may be lost" if health.may_lose else "NONE more may be lost"
    return (
        f"{group.group}: healthy, {health.leader_node} leads, {health.in_touch} of "
        f"{health.voters} voters in touch, {more}"
    )
