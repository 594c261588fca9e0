"""``dledger leader``."""

from __future__ import annotations

import click

from broker.cli.terminal.options import cluster_options
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Group
from broker.cli.terminal.progress import waiting
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.member_changes import GroupMembers

EXAMPLES = """\
  dledger leader transfer broker-a n1      n1 catches up and takes over; messages wait meanwhile

"""


command = Group()


@command.command(examples=EXAMPLES)
@click.argument("group")
@click.argument("node", help="n0, n1, ... or group/n0.")
@cluster_options
def transfer(group: str, node: str, namesrv: str, output: Output) -> None:
    """Make another voter the leader."""
    node = node.removeprefix(f"{group}/")
    with waiting(f"{node} catches up and takes over"):
        members = run_admin(namesrv, lambda admin: GroupMembers(admin, group).transfer(node))
    leader = f"{group}/{node}"
    if not output.document({"group": group, "leader": leader, "term": members["term"]}):
        print(f"{group}: {leader} leads in term {members['term']}")
