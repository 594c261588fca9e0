"""``dledger kill``."""

from __future__ import annotations

from pathlib import Path

import click

from broker.cli.local_cluster.local_cluster import REMOVED_FILE, find_process, restart_hint
from broker.cli.local_cluster.managed_processes import end_processes
from broker.cli.terminal.options import data_hint, data_option, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.command_error import CommandError

EXAMPLES = """\
  dledger kill broker-a/n0         `dledger status` then shows the new leader
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("node", help="group/node, such as broker-a/n0, or namesrv.")
@data_option
@json_option
def command(node: str, data: Path, output: Output) -> None:
    process = find_process(data, node)
    ended = end_processes([process], kill=True)
    start = f"`dledger start {process.name}{data_hint(data)}`"
    if not ended and (process.directory / REMOVED_FILE).exists():
        raise CommandError(restart_hint(process.name, data))
    if not ended:
        raise CommandError(f"{process.name} is not running; {start} starts it")
    pid = ended[process.name]
    if not output.document({"node": process.name, "pid": pid}):
        print(f"killed {process.name} (pid {pid}); {start} starts it again")
