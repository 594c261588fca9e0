"""Snapshots of nodes on this machine, one of each group, for the time of a backup."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.admin.group_health import LEADER
from broker.cli.local_cluster.port_layout import why_taken
from broker.cli.terminal.command_error import CommandError
from broker.cli.terminal.progress import waiting
from broker.cluster_admin.admin_client import run_to_its_end
from broker.cluster_admin.cluster_view import DOWN, GroupView, NodeView
from broker.cluster_admin.snapshot_fetch import NotHereError, require_here
from broker.cluster_admin.snapshot_requests import snapshot_requests
from dledger.wire.endpoint import Endpoint


@contextmanager
def local_snapshots(groups: Sequence[GroupView]) -> Iterator[list[Path]]:
    """Makes new snapshots and gives their directories. They are removed at the end.

    Raises :class:`CommandError` if a group has no node here, or a snapshot fails.
    """
    nodes = [_node_here(group) for group in groups]
    with waiting(f"{len(nodes)} nodes make their snapshots"):
        taken = run_to_its_end(_take(nodes))
    directories = [Path(each["directory"]) for each in taken if "directory" in each]
    try:
        for each in taken:
            if "error" in each:
                raise CommandError(f"{each['replica']}: {each['error']}")
            try:
                require_here(Path(each["directory"]), each)
            except NotHereError as error:
                raise CommandError(
                    f"{each['replica']}: its snapshot in {each['directory']} cannot be read here"
                ) from error
        yield directories
    finally:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def _node_here(group: GroupView) -> NodeView:
    """A node on this machine, if possible one that does not lead."""
    nodes = sorted(group.nodes, key=lambda node: (node.role == LEADER, node.node))
    for node in nodes:
        if node.http is not None and node.role != DOWN and _is_here(node.http):
            return node
    raise CommandError(
        f"no node of {group.group} runs on this machine; run this where one does, name the groups "
        "with --group, or back up a snapshot with --snapshot"
    )


def _is_here(address: str) -> bool:
    return why_taken(Endpoint(Endpoint.parse(address).host, 0)) is None


async def _take(nodes: Sequence[NodeView]) -> list[dict[str, Any]]:
    async with snapshot_requests() as requests:
        return list(await asyncio.gather(*(requests.take(node, None) for node in nodes)))
