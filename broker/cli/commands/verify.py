"""``dledger verify``."""

from __future__ import annotations

from pathlib import Path

import click

from broker.cli.terminal.options import DIRECTORY, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.command_error import UsageError
from store.counted import counted
from store.errors import DataFormatError, DataLockedError, StoreError
from store.io.os_filesystem import OsFileSystem
from store.verify import Verification, log_size, verify_replicas
from store.verify.files.unread_files import exit_code
from store.verify.plan.targets import find_replicas

EXAMPLES = """\
  dledger verify data/broker-a/n0                     one replica, of a node that is stopped
  dledger verify data/broker-a                        all replicas of a group, compared
  dledger verify snap/broker-a/n0 snap/broker-a/n1    snapshots
"""
NOTES = """\
exit code: 0 consistent; 1 something is wrong; 2 nothing is wrong of what could be read, and
something could not be read or checked
"""


@click.command(cls=Command, examples=EXAMPLES, notes=NOTES)
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=DIRECTORY,
    help="The directory of a replica, or of several.",
)
@json_option
def command(directories: tuple[Path, ...], output: Output) -> int:
    fs = OsFileSystem()
    with UsageError.instead_of(DataFormatError):
        named = [find_replicas(fs, str(directory)) for directory in directories]
    replicas = [replica for found in named for replica in found]
    total = sum(log_size(fs, replica) for replica in replicas)
    try:
        with Progress("bytes of log checked", total=total) as progress:
            verification = verify_replicas(fs, replicas, progress.add)
    except (DataLockedError, DataFormatError) as error:
        raise UsageError(str(error)) from error
    except (StoreError, OSError) as error:
        raise UsageError(f"the check could not be finished: {error}") from error
    if not output.document(verification.to_json()):
        _print(verification)
    return exit_code(verification.findings)


def _print(verification: Verification) -> None:
    for finding in verification.findings:
        print(finding)
    for report in verification.replicas:
        if report.last_index < report.first_index:
            what = "no entry"
        else:
            what = (
                f"entries {report.first_index} to {report.last_index} "
                f"({report.commit_index} is known to be committed), "
                f"{counted(report.messages, 'message')}"
            )
        print(f"{report.name}: {what}: {_count(len(report.findings))}")
    if len(verification.replicas) > 1:
        print(f"between the replicas: {_count(len(verification.divergences))}")
        unknown = [report.name for report in verification.replicas if report.state == "unknown"]
        if unknown:
            print(
                "state of the broker not compared: no other replica has a checkpoint of the "
                f"same entry: {', '.join(unknown)}"
            )


def _count(findings: int) -> str:
    return "nothing found" if findings == 0 else counted(findings, "finding")
