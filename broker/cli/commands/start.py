"""``dledger start``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from broker.cli.local_cluster.forked_servers import forking
from broker.cli.local_cluster.local_cluster import NAMESRV, LocalCluster, open_cluster
from broker.cli.local_cluster.managed_processes import ManagedProcess
from broker.cli.terminal.options import add_data, add_json, print_json

EXAMPLES = """\
  dledger start broker-a/n0
  dledger start n0 n1 n2           all at once, quicker than one after the other
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "nodes",
        nargs="+",
        metavar="NODE",
        help="group/node, such as broker-a/n0, or namesrv; of several, those that do not run start",
    )
    add_data(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    cluster = open_cluster(args.data)
    processes = list(dict.fromkeys(cluster.process(name) for name in args.nodes))
    missing = [process for process in processes if process.pid is None]
    if len(processes) > 1:
        for process in processes:
            if process not in missing:
                print(f"{process.name} runs already", file=sys.stderr)
        processes = missing
    for process in processes:
        process.start(forking(args.command_line))
    for process in processes:
        _print_started(_wait_for(process, cluster), as_json=args.json)
    return 0


def _wait_for(process: ManagedProcess, cluster: LocalCluster) -> dict[str, Any]:
    # Imported while the nodes start, which takes longer than this.
    from broker.cli.local_cluster.readiness import wait_until_answering, wait_until_listening  # noqa: PLC0415 - slow

    if process is cluster.namesrv_process:
        wait_until_listening(cluster)
        pid, address, role = process.pid, str(cluster.namesrv), NAMESRV
    else:
        node = cluster.node(process.name)
        told = wait_until_answering(node)
        pid, address, role = int(told["pid"]), str(node.config.own.address), told["raftRole"]
    return {"node": process.name, "pid": pid, "address": address, "role": role}


def _print_started(started: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(started)
    else:
        print("{node} runs at {address} (pid {pid}), {role}".format(**started))
