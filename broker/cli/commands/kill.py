"""``dledger kill``."""

from __future__ import annotations

import argparse

from broker.cli.local_cluster.local_cluster import REMOVED_FILE, find_process, restart_hint
from broker.cli.local_cluster.managed_processes import end_processes
from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.options import add_data, add_json, data_option, print_json

EXAMPLES = """\
  dledger kill broker-a/n0         then `dledger status` shows who leads instead
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="group/node, such as broker-a/n0, or namesrv")
    add_data(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    process = find_process(args.data, args.node)
    ended = end_processes([process], kill=True)
    start = f"`dledger start {process.name}{data_option(args.data)}`"
    if not ended and (process.directory / REMOVED_FILE).exists():
        raise CommandError(restart_hint(process.name, args.data))
    if not ended:
        raise CommandError(f"{process.name} does not run; {start} starts it")
    pid = ended[process.name]
    if args.json:
        print_json({"node": process.name, "pid": pid})
    else:
        print(f"killed {process.name} (pid {pid}); {start} brings it back")
    return 0
