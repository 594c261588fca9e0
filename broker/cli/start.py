"""``dledger start``."""

from __future__ import annotations

import argparse

from broker.cli.cluster import NAMESRV, open_cluster
from broker.cli.options import add_data, add_json, print_json
from broker.cli.readiness import wait_until_answering, wait_until_listening

EXAMPLES = """\
  dledger start broker-a/n0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="group/node, such as broker-a/n0, or namesrv")
    add_data(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    cluster = open_cluster(args.data)
    process = cluster.process(args.node)
    process.start()
    if process is cluster.namesrv_process:
        wait_until_listening(cluster)
        pid, address, role = process.pid, str(cluster.namesrv), NAMESRV
    else:
        node = cluster.node(args.node)
        told = wait_until_answering(node)
        pid, address, role = int(told["pid"]), str(node.config.own.address), told["raftRole"]
    if args.json:
        print_json({"node": process.name, "pid": pid, "address": address, "role": role})
    else:
        print(f"{process.name} runs at {address} (pid {pid}), {role}")
    return 0
