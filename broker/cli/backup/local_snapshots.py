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

LAG_ENTRIES_MAX = 10_000
"""How far a node may be behind its leader, as for the alert ``DledgerPeerLags``: more than a busy
leader writes while the nodes are asked."""

REFILLING = "refilling"
"""A voter that lost its disk (:attr:`NodeView.member`)."""


@contextmanager
def local_snapshots(groups: Sequence[GroupView]) -> Iterator[list[Path]]:
    """Makes new snapshots and gives their directories. They are removed at the end.

    Raises :class:`CommandError` if a group has no node here that has what its group has, or a
    snapshot fails.
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
    """A node on this machine that has what its group has, if possible one that does not lead.

    Raises :class:`CommandError` with what is wrong with those that are here.
    """
    here = [
        node
        for node in sorted(group.nodes, key=lambda node: (node.role == LEADER, node.node))
        if node.http is not None and node.role != DOWN and _is_here(node.http)
    ]
    if not here:
        raise CommandError(
            f"no node of {group.group} runs on this machine; run this where one does, name the "
            "groups with --group, or back up a snapshot with --snapshot"
        )
    lacks = {node.node: _what_it_lacks(node) for node in here}
    for node in here:
        if not lacks[node.node]:
            return node
    told = "; ".join(f"{name} {what}" for name, what in lacks.items())
    raise CommandError(
        f"{told}: run this on another machine, or back up a snapshot with --snapshot all the same"
    )


def _what_it_lacks(node: NodeView) -> str:
    """Why a backup of this node would be old or damaged; empty: it would not."""
    if node.lag_entries is None:
        return "knows no leader, so it may be far behind"
    if node.lag_entries > LAG_ENTRIES_MAX:
        return f"is {node.lag_entries:,} entries behind"
    if node.refilling is not None or node.member == REFILLING:
        return "is being refilled"
    return "has damaged entries" if node.damage else ""


def _is_here(address: str) -> bool:
    return why_taken(Endpoint(Endpoint.parse(address).host, 0)) is None


async def _take(nodes: Sequence[NodeView]) -> list[dict[str, Any]]:
    async with snapshot_requests() as requests:
        return list(await asyncio.gather(*(requests.take(node, None) for node in nodes)))
