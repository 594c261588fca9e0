"""Snapshots of nodes on this machine, one of each group, for the time of a backup."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker.admin.group_health import LEADER
from broker.cli.local_cluster.port_layout import why_taken
from broker.cli.terminal.progress import waiting
from broker.cluster_admin.admin_client import run_to_its_end
from broker.cluster_admin.cluster_view import DOWN, GroupView, NodeView
from broker.cluster_admin.snapshot_fetch import NotHereError, require_here
from broker.cluster_admin.snapshot_requests import SnapshotRequests, snapshot_requests
from broker.command_error import CommandError
from dledger.wire.endpoint import Endpoint

LAG_ENTRIES_MAX = 10_000
"""How far a node may be behind its leader, as for the alert ``DledgerPeerLags``: more than a busy
leader writes while the nodes are asked."""

REFILLING = "refilling"
"""A voter that lost its disk (:attr:`NodeView.member`)."""


@dataclass(slots=True)
class LocalSnapshots:
    """Snapshots that nodes of this machine made for a backup."""

    directories: list[Path] = field(default_factory=list)
    """One of each group."""
    left: list[Path] = field(default_factory=list)
    """Those that could not be removed at the end. It is told."""


@contextmanager
def local_snapshots(groups: Sequence[GroupView]) -> Iterator[LocalSnapshots]:
    """Makes new snapshots. They are removed at the end.

    Raises :class:`CommandError` if a group has no node here that has what its group has, or a
    snapshot fails.
    """
    nodes = [_node_here(group) for group in groups]
    made = LocalSnapshots()
    try:
        with waiting(f"{len(nodes)} nodes make their snapshots"):
            run_to_its_end(_take_all(nodes, made))
        yield made
    finally:
        made.left += [each for each in made.directories if not _remove(each)]


async def _take_all(nodes: Sequence[NodeView], made: LocalSnapshots) -> None:
    """Adds each snapshot to ``made`` as it comes, so that it is removed after Ctrl-C, too. A node
    removes a snapshot whose request has ended before."""

    async def take(requests: SnapshotRequests, node: NodeView) -> str:
        told = await requests.take(node, None)
        if "error" in told:
            return f"{node.node}: {told['error']}"
        directory = Path(told["directory"])
        try:
            require_here(directory, told)
        except NotHereError:
            return f"{node.node}: its snapshot in {directory} is not here; remove it there"
        except OSError as error:
            why = error.strerror
            return f"{node.node}: its snapshot in {directory} cannot be read ({why}); remove it"
        made.directories.append(directory)
        return ""

    async with snapshot_requests() as requests:
        failures = await asyncio.gather(*(take(requests, node) for node in nodes))
    if told := "; ".join(filter(None, failures)):
        raise CommandError(told)


def _remove(directory: Path) -> bool:
    """Returns whether the snapshot is removed; tells why not."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        print(
            f"dledger backup: the snapshot {directory} cannot be removed: {error.strerror}; remove "
            "it, because it keeps files that its node has expired",
            file=sys.stderr,
        )
        return False
    return True


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
