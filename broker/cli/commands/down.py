"""``dledger down``."""

from __future__ import annotations

import argparse

from broker.cli.local_cluster.local_cluster import find_processes, stop_processes
from broker.cli.terminal.options import add_data, add_json, print_json

EXAMPLES = """\
  dledger down                     `dledger up` starts it again, with all its data
  dledger down --data /tmp/trial
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    stopped = stop_processes(find_processes(args.data).values())
    if args.json:
        print_json({"stopped": stopped})
    elif stopped:
        print(f"stopped {', '.join(stopped)}; data stays in {args.data}")
    else:
        print(f"nothing runs in {args.data}")
    return 0
