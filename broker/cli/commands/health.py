"""``dledger health``."""

from __future__ import annotations

import argparse

from broker.cli.cluster_admin.admin_client import run_admin
from broker.cli.cluster_admin.cluster_view import GroupView, view_groups
from broker.cli.terminal.command_error import EXIT_FAILED
from broker.cli.terminal.options import add_json, add_namesrv, print_json

EXAMPLES = """\
  dledger health                                   for people; the exit code is for scripts
  dledger health --namesrv 10.0.0.1:9876 --json

Exits 0 if every broker group has a leader that serves and a majority that follows it, else 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_namesrv(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    groups = run_admin(args.namesrv, view_groups)
    healthy = are_healthy(groups)
    if args.json:
        found = [group.health for group in groups if group.health is not None]
        document = {
            "healthy": healthy,
            "may_lose": min((health.may_lose for health in found), default=0),
            "groups": [health.to_json() for health in found],
        }
        print_json(document)
    else:
        for group in groups:
            print(_line(group))
        if not groups:
            print(f"no broker is registered at {args.namesrv}")
    return 0 if healthy else EXIT_FAILED


def are_healthy(groups: list[GroupView]) -> bool:
    """Whether there are groups, and each has a leader that serves and a majority."""
    return bool(groups) and all(group.healthy for group in groups)


def _line(group: GroupView) -> str:
    health = group.health
    if health is None or not health.healthy:
        missing = "" if health is None else ", ".join(health.missing)
        start = f"; not in touch: {missing}" if missing else ""
        return f"{group.group}: NOT healthy, {'' if health is None else health.problem}{start}"
    more = f"{health.may_lose} more may be lost" if health.may_lose else "NONE more may be lost"
    return (
        f"{group.group}: healthy, {health.leader} leads, {health.in_touch} of {health.voters} "
        f"voters in touch, {more}"
    )
