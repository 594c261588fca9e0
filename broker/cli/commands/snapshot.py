"""``dledger snapshot``.

On request over HTTP a node writes a snapshot only below the ``snapshot_dirs`` of its ``node.toml``,
or into its own directory. A snapshot of a node on this machine is moved to the target.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click

from broker.cli.terminal.options import DIRECTORY, cluster_options
from broker.cli.terminal.output import Output, print_table, unregistered_groups
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import waiting
from broker.cluster_admin.admin_client import run_admin, run_to_its_end
from broker.cluster_admin.broker_names import unregistered
from broker.cluster_admin.cluster_view import NodeView, view_groups
from broker.cluster_admin.snapshot_fetch import NotHereError, fetch_snapshot
from broker.cluster_admin.snapshot_requests import snapshot_requests
from broker.command_error import CommandError

EXAMPLES = """\
  dledger snapshot --out /backup/today
  dledger verify /backup/today
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.option(
    "--out",
    metavar="DIR",
    type=DIRECTORY,
    required=True,
    help="A new directory: the snapshot of each node goes to DIR/<group>/<node>/. A node on "
    "another machine writes it there itself, if snapshot_dirs of its node.toml allows it. "
    "If DIR is on the same file system, it has links to live files: "
    "copy a snapshot before you change it.",
)
@cluster_options
def command(out: Path, namesrv: str, output: Output) -> None:
    out = out.absolute()
    _require_usable(out)
    groups = run_admin(namesrv, view_groups)
    gone = [group.group for group in groups if group.unregistered_seconds is not None]
    nodes = [node for group in groups if group.unregistered_seconds is None for node in group.nodes]
    left_out = unregistered(gone)
    if not nodes:
        why = f": {left_out}; start its nodes" if gone else ""
        raise CommandError(f"no broker is registered at {namesrv}{why}")
    if gone:
        print(f"dledger snapshot: {left_out}; the snapshot lacks it", file=sys.stderr)
    with waiting(f"{len(nodes)} nodes make their snapshots"):
        taken = run_to_its_end(_take_all(nodes, out))
    results = [_fetched(result, out) for result in taken]
    failed = [result for result in results if "error" in result]
    document = {"complete": not failed, "replicas": results, **unregistered_groups(gone)}
    if not output.document(document):
        print_table(
            ("REPLICA", "ENTRIES", "END", "DIRECTORY"),
            [
                (
                    result["replica"],
                    f"{result['first_index']} to {result['commit_index']}",
                    result["end_position"],
                    result["directory"],
                )
                for result in results
                if "error" not in result
            ],
        )
    if failed:
        what = "; ".join(f"{result['replica']}: {result['error']}" for result in failed)
        raise CommandError(
            f"{len(failed)} of {len(results)} replicas have no snapshot in {out}: {what}"
        )


def _require_usable(out: Path) -> None:
    """Raises :class:`CommandError` for an unusable directory: snapshots of two moments in one
    directory would look inconsistent."""
    if any((parent / "commitlog").is_dir() for parent in Path(os.path.realpath(out)).parents):
        raise CommandError(f"{out}: a snapshot cannot be in the directory of a replica")
    try:
        used = any(out.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror}; name a new directory") from error
    if used:
        raise CommandError(f"{out}: not empty; name a new directory")


async def _take_all(nodes: list[NodeView], out: Path) -> list[dict[str, Any]]:
    async with snapshot_requests() as requests:
        return list(await asyncio.gather(*(requests.take(node, out / node.node) for node in nodes)))


def _fetched(result: dict[str, Any], out: Path) -> dict[str, Any]:
    """Moves the snapshot to its target. Returns the result, with an ``error`` if that failed."""
    wanted = out / result["replica"]
    if "error" in result or result["directory"] == str(wanted):
        return result
    made = Path(result["directory"])
    try:
        fetch_snapshot(made, wanted, result)
    except NotHereError:
        error = (
            f"the snapshot is on its machine in {made}: move it from there, "
            f"and add {out.parent} to snapshot_dirs in its node.toml for the next time"
        )
    except OSError as fault:
        error = f"it is in {made} and cannot be moved to {wanted}: {fault.strerror or fault}"
    else:
        return {**result, "directory": str(wanted)}
    return {"replica": result["replica"], "error": error}
