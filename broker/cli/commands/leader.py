"""``dledger leader``."""

from __future__ import annotations

import argparse

from broker.cli.cluster_admin.admin_client import run_admin
from broker.cli.cluster_admin.member_changes import GroupMembers
from broker.cli.terminal.options import add_json, add_namesrv, print_json

EXAMPLES = """\
  dledger leader transfer broker-a n1      n1 catches up, takes over, and no message is refused
                                           for longer than that takes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    transfer = actions.add_parser("transfer", help="make another voter the leader")
    transfer.add_argument("group", metavar="GROUP")
    transfer.add_argument("node", metavar="NODE", help="n0, n1, ... or group/n0")
    add_namesrv(transfer)
    add_json(transfer)


def run(args: argparse.Namespace) -> int:
    node = args.node.removeprefix(f"{args.group}/")
    members = run_admin(args.namesrv, lambda admin: GroupMembers(admin, args.group).transfer(node))
    if args.json:
        print_json({"group": args.group, "leader": f"{args.group}/{node}", "term": members["term"]})
    else:
        print(f"{args.group}: {args.group}/{node} leads in term {members['term']}")
    return 0
