"""``dledger snapshot``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp

from broker.cli.admin import run_admin, run_to_its_end
from broker.cli.failure import CommandError
from broker.cli.options import add_json, add_namesrv, print_json, print_table
from broker.cli.view import DOWN, NodeView, view_groups

EXAMPLES = """\
  dledger snapshot --out /backup/today
  dledger verify /backup/today
"""

SNAPSHOT_SECONDS = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="each node writes DIR/<group>/<node>/ on its own machine; "
        "links to live files are made where DIR is on the same file system: "
        "copy a snapshot before you change a byte of it",
    )
    add_namesrv(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    groups = run_admin(args.namesrv, view_groups)
    gone = [group.group for group in groups if group.gone_seconds is not None]
    nodes = [node for group in groups if group.gone_seconds is None for node in group.nodes]
    left_out = f"no node of {', '.join(gone)} is registered any more"
    if not nodes:
        why = f": {left_out}; start its nodes" if gone else ""
        raise CommandError(f"no broker is registered at {args.namesrv}{why}")
    if gone:
        print(f"dledger snapshot: {left_out}; the snapshot goes without", file=sys.stderr)
    results = run_to_its_end(_take_all(nodes, args.out.absolute()))
    failed = [result for result in results if "error" in result]
    if args.json:
        print_json({"complete": not failed, "replicas": results, "gone_groups": gone})
    else:
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
        raise CommandError(f"{len(failed)} of {len(results)} replicas have no snapshot: {what}")
    return 0


async def _take_all(nodes: list[NodeView], out: Path) -> list[dict[str, Any]]:
    timeout = aiohttp.ClientTimeout(total=SNAPSHOT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        return list(await asyncio.gather(*(_take(session, node, out) for node in nodes)))


async def _take(session: aiohttp.ClientSession, node: NodeView, out: Path) -> dict[str, Any]:
    """What the node answered, or ``error``."""
    if node.http is None or node.role == DOWN:  # a process that hangs would take the connection
        error = f"no answer from {node.address or 'the node'}; start it and try again"
        return {"replica": node.node, "error": error}
    body = {"directory": str(out / node.node)}
    try:
        async with session.post(f"http://{node.http}/snapshot", json=body) as answer:
            document = await answer.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return {"replica": node.node, "error": f"no answer from {node.http}: {error}"}
    return {"replica": node.node, **document}
