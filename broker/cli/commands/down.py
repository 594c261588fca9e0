"""``dledger down``."""

from __future__ import annotations

from pathlib import Path

import click

from broker.cli.local_cluster.local_cluster import find_processes, stop_processes
from broker.cli.terminal.options import data_option, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import waiting

EXAMPLES = """\
  dledger down                     `dledger up` starts it again, with all its data
  dledger down --data /tmp/trial
"""


@click.command(cls=Command, examples=EXAMPLES)
@data_option
@json_option
def command(data: Path, output: Output) -> None:
    processes = find_processes(data)
    with waiting(f"stopping {len(processes)} processes"):
        stopped = stop_processes(processes.values())
    if output.document({"stopped": stopped}):
        return
    if stopped:
        print(f"stopped {', '.join(stopped)}; data stays in {data}")
    else:
        print(f"nothing runs in {data}")
