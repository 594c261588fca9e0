"""``dledger start``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from broker.cli.local_cluster.forked_servers import fork
from broker.cli.local_cluster.local_cluster import NAMESRV, LocalCluster, open_cluster
from broker.cli.local_cluster.managed_processes import ManagedProcess
from broker.cli.terminal.options import data_option, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command, CommandLine
from broker.cli.terminal.progress import waiting

EXAMPLES = """\
  dledger start broker-a/n0
  dledger start n0 n1 n2           all at once, faster than one after the other
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument(
    "nodes",
    nargs=-1,
    required=True,
    metavar="NODE...",
    help="group/node, such as broker-a/n0, or namesrv; of several, those that run are skipped.",
)
@data_option
@json_option
@click.pass_obj
def command(command_line: CommandLine, nodes: tuple[str, ...], data: Path, output: Output) -> None:
    cluster = open_cluster(data)
    processes = list(dict.fromkeys(cluster.process(name) for name in nodes))
    missing = [process for process in processes if process.pid is None]
    if len(processes) > 1:
        for process in processes:
            if process not in missing:
                print(f"{process.name} is running already", file=sys.stderr)
        processes = missing
    for process in processes:
        process.start(partial(fork, command_line))
    for process in processes:
        with waiting(f"{process.name} starts"):
            started = _wait_for(process, cluster)
        if not output.document(started):
            print("{node} runs at {address} (pid {pid}), {role}".format(**started))


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
