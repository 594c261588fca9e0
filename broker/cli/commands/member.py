"""``dledger member``."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from broker.cli.cluster_admin.admin_client import AdminClient, run_admin
from broker.cli.cluster_admin.member_changes import GroupMembers
from broker.cli.local_cluster.local_member import local_cluster, put_aside, retire, start_member
from broker.cli.local_cluster.readiness import wait_until_answering
from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.options import add_data, add_json, add_namesrv, print_json, print_table
from broker.config.node_config import NODE_NAME
from dledger.wire.endpoint import Endpoint, EndpointError

EXAMPLES = """\
  dledger member list broker-a
  dledger member add broker-a n3 127.0.0.1:10941              a fourth voter
  dledger member add broker-a n4 10.0.0.5:10911 --learner     gets the log, counts for nothing
  dledger member promote broker-a n4
  dledger member remove broker-a n0                           the leader, too
  dledger member replace broker-a n2                          dead, or its disk is lost

ADDR is where clients find the new node. In a cluster of `dledger up` (--data) the node is made and
started, if it does not run already, and one that is removed is ended: `up` does not start it any
more. Elsewhere a new node must run already: a node.toml with `join = true`, its own addresses and
those of a member or two, and `dledger node --config FILE`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser(
        "add", help="add a node: a learner first, a voter once it has caught up"
    )
    promote = actions.add_parser("promote", help="make a voter of a learner")
    remove = actions.add_parser("remove", help="take a node out of its group")
    replace = actions.add_parser("replace", help="a new disk for a node that is dead or wiped")
    listing = actions.add_parser("list", help="the members of a group")
    for action in (add, promote, remove, replace, listing):
        action.add_argument("group", metavar="GROUP")
    for action in (add, promote, remove, replace):
        action.add_argument("node", metavar="NODE", type=_node, help="n0, n1, ...")
    add.add_argument("address", metavar="ADDR", type=_address)
    replace.add_argument("address", metavar="ADDR", type=_address, nargs="?")
    add.add_argument("--learner", action="store_true", help="leave it a learner")
    for action in (add, remove, replace):
        add_data(action)
    for action in (add, promote, remove, replace, listing):
        add_namesrv(action)
        add_json(action)


def run(args: argparse.Namespace) -> int:
    actions = {
        "add": _add,
        "promote": _promote,
        "remove": _remove,
        "replace": _replace,
        "list": _list,
    }
    members = actions[args.action](args)
    if args.json:
        print_json(members)
    else:
        print_members(members)
    return 0


def _node(text: str) -> str:
    if NODE_NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no node; it may be n0, n1, n2 and so on")
    return text


def _address(text: str) -> str:
    try:
        return str(Endpoint.parse(text))
    except EndpointError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _list(args: argparse.Namespace) -> dict[str, Any]:
    return run_admin(args.namesrv, lambda admin: GroupMembers(admin, args.group).members())


def _add(args: argparse.Namespace) -> dict[str, Any]:
    members = _list(args)
    if args.node in members["voters"]:
        raise CommandError(f"{args.node} is a voter of {args.group} already")
    cluster = local_cluster(args.data, args.group, args.namesrv)
    if cluster is not None:
        started = start_member(cluster, args.group, args.node, args.address)
        if started is not None:
            wait_until_answering(started)
    return _join(args, args.address, promote=not args.learner)


def _join(args: argparse.Namespace, address: str, *, promote: bool) -> dict[str, Any]:
    async def join(admin: AdminClient) -> dict[str, Any]:
        group = GroupMembers(admin, args.group)
        members = await group.add(args.node, address)
        return await group.promote(args.node) if promote else members

    return run_admin(args.namesrv, join)


def _promote(args: argparse.Namespace) -> dict[str, Any]:
    return run_admin(args.namesrv, lambda admin: GroupMembers(admin, args.group).promote(args.node))


def _remove(args: argparse.Namespace) -> dict[str, Any]:
    cluster = local_cluster(args.data, args.group, args.namesrv)
    name, members = f"{args.group}/{args.node}", _list(args)
    if args.node in members["members"]:
        members = run_admin(
            args.namesrv, lambda admin: GroupMembers(admin, args.group).remove(args.node)
        )
    elif cluster is None or name not in cluster.nodes:
        raise CommandError(
            f"{args.node} is not a member of {args.group}; "
            f"`dledger member list {args.group}` shows them"
        )
    if cluster is None or not retire(cluster, args.group, args.node):
        print(
            f"{name} is no node of a cluster in {args.data}: "
            "stop its process, and do not start it again",
            file=sys.stderr,
        )
    return members


def _replace(args: argparse.Namespace) -> dict[str, Any]:
    """A node that came back on an empty disk is refilled by itself: this only waits for it."""
    members = _list(args)
    known = members["members"].get(args.node)
    if known is None and args.address is None:
        raise UsageError(f"{args.node} is not a member of {args.group}; `dledger member add` adds")
    address = args.address or known["address"]
    came_back = known is not None and run_admin(
        args.namesrv,
        lambda admin: GroupMembers(admin, args.group).refilled(args.node, known["address"]),
    )
    if came_back and args.address in (None, known["address"]):
        print(
            f"{args.group}/{args.node} answers at {address} and is a voter with all its data: "
            "nothing is replaced; stop it first to give it an empty disk",
            file=sys.stderr,
        )
        return _list(args)
    cluster = local_cluster(args.data, args.group, args.namesrv)
    if cluster is None and args.address is None:
        raise UsageError(
            f"{args.node} does not answer at {address}: start a new one with `join = true` in its "
            "node.toml, and say where it is: dledger member replace GROUP NODE ADDR"
        )
    if known is not None:
        run_admin(args.namesrv, lambda admin: GroupMembers(admin, args.group).remove(args.node))
    if cluster is not None:
        put_aside(cluster, args.group, args.node)
        started = start_member(cluster, args.group, args.node, address)
        if started is not None:
            wait_until_answering(started)
    return _join(args, address, promote=True)


def print_members(members: dict[str, Any]) -> None:
    """One line a member."""
    if members["old_voters"]:
        print(
            f"{members['group']}: a change is under way, from voters "
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
    """Of a member that lost its disk, none counts."""
    return "refilling" if re.fullmatch("0+1", text) else text or None
