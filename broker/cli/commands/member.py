"""``dledger member``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from broker.cli.local_cluster.local_cluster import LocalCluster
from broker.cli.local_cluster.local_member import (
    delete_data,
    local_cluster,
    put_aside,
    retire,
    start_member,
)
from broker.cli.local_cluster.readiness import wait_until_answering
from broker.cli.terminal.options import (
    ask_first,
    cluster_options,
    data_option,
    yes_option,
)
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cli.terminal.progress import waiting
from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.cluster_admin.member_changes import GroupMembers
from broker.command_error import CommandError, UsageError
from broker.config.node_config import NODE_NAME
from dledger.wire.endpoint import Endpoint, EndpointError

NOTES = """\
ADDR is the new node's address for clients. In a cluster of `dledger up` (--data) the node is made
and started, unless it runs; a removed node is stopped, and `up` does not start it again. Elsewhere
the new node must run already: its node.toml has `join = true`, its own addresses and those of one
or two members, and `dledger node --config FILE` runs it.
"""


def _node(context: click.Context, _argument: click.Parameter, text: str) -> str:
    """The name within the group, of ``n0`` or ``group/n0``."""
    node = text.removeprefix(f"{context.params.get('group')}/")
    if NODE_NAME.fullmatch(node) is None:
        raise click.BadParameter(f"{text!r} is not a node; nodes are n0, n1, n2 and so on")
    return node


def _address(text: str) -> str:
    try:
        return str(Endpoint.parse(text))
    except EndpointError as error:
        raise ValueError(str(error)) from error


command = Group(notes=NOTES)
group_argument = click.argument("group")
node_argument = click.argument("node", callback=_node, help="n0, n1, ... or group/n0.")


@command.command("list", examples="  dledger member list broker-a\n")
@group_argument
@cluster_options
def list_members(*, group: str, namesrv: str, output: Output) -> None:
    """The members of a group."""
    _print(_members(namesrv, group), output)


@command.command(
    examples="""\
  dledger member add broker-a n3 127.0.0.1:10941              a fourth voter
  dledger member add broker-a n4 10.0.0.5:10911 --learner     gets the log, has no vote
"""
)
@group_argument
@node_argument
@click.argument("address", metavar="ADDR", type=_address)
@click.option("--learner", is_flag=True, help="Keep it a learner.")
@data_option
@cluster_options
def add(
    *, group: str, node: str, address: str, learner: bool, data: Path, namesrv: str, output: Output
) -> None:
    """Add a node: a learner first, a voter once it has caught up."""
    if node in _members(namesrv, group)["voters"]:
        raise CommandError(f"{node} is a voter of {group} already")
    cluster = local_cluster(data, group, namesrv)
    if cluster is not None:
        _start(cluster, group, node, address)
    _print(_join(namesrv, group, node, address, promote=not learner), output)


@command.command(examples="  dledger member promote broker-a n4\n")
@group_argument
@node_argument
@cluster_options
def promote(*, group: str, node: str, namesrv: str, output: Output) -> None:
    """Make a learner a voter."""
    with waiting(f"{node} catches up"):
        members = run_admin(namesrv, lambda admin: GroupMembers(admin, group).promote(node))
    _print(members, output)


@command.command(
    examples="""\
  dledger member remove broker-a n0                           also if it leads
  dledger member remove broker-a n0 --purge                   with its data
"""
)
@group_argument
@node_argument
@data_option
@click.option("--purge", is_flag=True, help="Delete the node's data in --data afterwards.")
@yes_option
@cluster_options
def remove(
    *, group: str, node: str, data: Path, purge: bool, yes: bool, namesrv: str, output: Output
) -> None:
    """Remove a node from its group. Its process ends once no member needs it."""
    deleted = ", and delete its data" if purge else ""
    ask_first(f"Remove {node} from {group}{deleted}", yes=yes)
    cluster = local_cluster(data, group, namesrv)
    name, members = f"{group}/{node}", _members(namesrv, group)
    nodes = {} if cluster is None else cluster.nodes
    removed = {} if cluster is None else cluster.removed
    if purge and name not in {**nodes, **removed}:
        raise CommandError(f"{name} is not a node of a cluster in {data}: its data is not there")
    if node in members["members"]:
        members = run_admin(namesrv, lambda admin: GroupMembers(admin, group).remove(node))
    elif name not in nodes and not purge:
        raise CommandError(
            f"{node} is not a member of {group}; `dledger member list {group}` shows them"
        )
    if cluster is None or not retire(cluster, group, node):
        print(
            f"{name} is not a node of a cluster in {data}: its process ends once it learns of the "
            "removal. If it is down or cut off, it may never learn: stop it, and do not start "
            "it again",
            file=sys.stderr,
        )
    elif purge:
        delete_data(cluster, group, node)
    _print(members, output)


@command.command(
    examples="  dledger member replace broker-a n2            dead, or its disk is lost\n"
)
@group_argument
@node_argument
@click.argument("address", metavar="[ADDR]", type=_address, required=False)
@data_option
@cluster_options
def replace(
    *, group: str, node: str, address: str | None, data: Path, namesrv: str, output: Output
) -> None:
    """Give a dead or wiped node a new disk.

    A node that starts on an empty disk is refilled by itself. Then this only waits for it.
    """
    members = _members(namesrv, group)
    known = members["members"].get(node)
    if known is None and address is None:
        raise UsageError(f"{node} is not a member of {group}; `dledger member add` adds it")
    place = address or known["address"]
    came_back = known is not None and run_admin(
        namesrv, lambda admin: GroupMembers(admin, group).refilled(node, known["address"])
    )
    if came_back and address in (None, known["address"]):
        print(
            f"{group}/{node} answers at {place} and is a voter with all its data: "
            "nothing is replaced; stop it first to give it an empty disk",
            file=sys.stderr,
        )
        _print(_members(namesrv, group), output)
        return
    cluster = local_cluster(data, group, namesrv)
    if cluster is None and address is None:
        raise UsageError(
            f"{node} does not answer at {place}: start a new one with `join = true` in its "
            "node.toml, and give its address: dledger member replace GROUP NODE ADDR"
        )
    if cluster is None:  # nothing is removed for a mistyped address
        run_admin(namesrv, lambda admin: GroupMembers(admin, group).node_at(node, place))
    if known is not None:
        run_admin(namesrv, lambda admin: GroupMembers(admin, group).remove(node))
    if cluster is not None:
        put_aside(cluster, group, node)
        _start(cluster, group, node, place)
    _print(_join(namesrv, group, node, place, promote=True), output)


def _members(namesrv: str, group: str) -> dict[str, Any]:
    return run_admin(namesrv, lambda admin: GroupMembers(admin, group).members())


def _start(cluster: LocalCluster, group: str, node: str, address: str) -> None:
    started = start_member(cluster, group, node, address)
    if started is not None:
        wait_until_answering(started)


def _join(namesrv: str, group: str, node: str, address: str, *, promote: bool) -> dict[str, Any]:
    async def join(admin: AdminClient) -> dict[str, Any]:
        members = GroupMembers(admin, group)
        added = await members.add(node, address)
        return await members.promote(node) if promote else added

    with waiting(f"{node} catches up"):
        return run_admin(namesrv, join)


def _print(members: dict[str, Any], output: Output) -> None:
    if not output.document(_named(members)):
        print_members(members)


def _named(members: dict[str, Any]) -> dict[str, Any]:
    """The leader's answer, with names ``group/node`` beside those within the group."""
    group, leader = members["group"], members["leader"]
    return {
        **members,
        "leader_node": None if leader is None else f"{group}/{leader}",
        "voter_nodes": [f"{group}/{node}" for node in members["voters"]],
        "members": {
            node: {"node": f"{group}/{node}", **at} for node, at in members["members"].items()
        },
    }


def print_members(members: dict[str, Any]) -> None:
    """Prints one line for each member."""
    if members["old_voters"]:
        print(
            f"{members['group']}: a change is in progress, from voters "
            f"{', '.join(members['old_voters'])} to {', '.join(members['voters'])}"
        )
    voters = {*members["voters"], *members["old_voters"]}
    print_table(
        ("NODE", "MEMBER", "LAG", "ADDRESS", "PEER", "HTTP", "INCARNATION"),
        [
            (
                f"{members['group']}/{node}",
                "voter" if node in voters else "learner",
                at["lag_entries"],
                at["address"] or None,
                at["peer"] or None,
                at["http"] or None,
                _incarnation(at["incarnation"]),
            )
            for node, at in sorted(members["members"].items())
        ],
    )


def _incarnation(text: str) -> str | None:
    """The incarnation; None for a member that lost its disk."""
    return "refilling" if re.fullmatch("0+1", text) else text or None
