"""Waits until started processes are ready or have ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from broker.cli.local_cluster.local_cluster import LocalCluster, LocalNode
from broker.cli.local_cluster.managed_processes import ManagedProcess
from broker.cluster_admin.admin_client import AdminClient, run_admin
from broker.cluster_admin.cluster_view import GroupView, view_groups, view_node
from broker.command_error import CommandError
from broker.config.node_config import NodeConfig
from dledger.raft.quorum import majority

T = TypeVar("T")

READY_SECONDS = 60.0
"""Enough for the recovery of a large log; after a clean stop a node needs less than a second."""

ASK_AGAIN_SECONDS = 0.05
"""The interval of polls: other processes send no event."""


def wait_until_serving(cluster: LocalCluster) -> list[GroupView]:
    """Returns when every group has a leader that serves and that the NameServer names, and every
    member answers or has ended. A node that was removed, or waits to be added, is not waited for.

    Raises :class:`CommandError` if that does not happen in time.
    """

    async def groups_that_serve(admin: AdminClient) -> list[GroupView]:
        groups = await view_groups(admin)
        serving = {group.group for group in groups if group.serves}
        missing = [group for group in cluster.groups if group not in serving]
        if missing:
            raise CommandError(f"{', '.join(missing)} has no leader that serves")
        named = {name.name: name.master for name in await admin.broker_names()}
        leaders = {each.group: each.leader_node for each in groups if each.group in cluster.groups}
        unknown = [
            group
            for group, leader in leaders.items()
            if leader is None or leader.address != named.get(group)
        ]
        if unknown:
            raise CommandError(
                f"the NameServer does not know the leader of {', '.join(unknown)} yet"
            )
        running = {node.config.name for node in cluster.nodes.values() if node.process.pid}
        silent = running & {node.node for group in groups for node in group.nodes if not node.pid}
        if silent:
            raise CommandError(f"{', '.join(sorted(silent))} does not answer")
        return groups

    return run_admin(
        str(cluster.namesrv),
        lambda admin: _until(lambda: groups_that_serve(admin), lambda: _obstacles(cluster)),
        own_admin(next(iter(cluster.nodes.values())).config),
    )


def wait_until_answering(node: LocalNode) -> dict[str, str]:
    """Waits for the node's status."""
    address = str(node.config.own.address)
    return run_admin(
        node.config.namesrv[0],
        lambda admin: _until(lambda: view_node(admin, address), lambda: _ended([node.process])),
        own_admin(node.config),
    )


def own_admin(config: NodeConfig) -> str:
    """The profile of the first admin, if this node has it; otherwise empty."""
    admin = config.security.files.admin_profile
    return admin if config.security.protects and os.path.exists(admin) else ""


def wait_until_listening(cluster: LocalCluster) -> None:
    """Waits until the NameServer answers."""
    run_admin(
        str(cluster.namesrv),
        lambda admin: _until(admin.broker_names, lambda: _ended([cluster.namesrv_process])),
    )


def _ended(processes: Iterable[ManagedProcess]) -> list[ManagedProcess]:
    return [process for process in processes if process.pid is None]


def _obstacles(cluster: LocalCluster) -> list[ManagedProcess]:
    """The ended processes that the cluster needs to serve."""
    ended = _ended([cluster.namesrv_process])
    for group in cluster.groups:
        nodes = [node.process for node in cluster.nodes.values() if node.config.group == group]
        if len(nodes) - len(_ended(nodes)) < majority(len(nodes)):
            ended += _ended(nodes)
    return ended


async def _until(
    attempt: Callable[[], Awaitable[T]], obstacles: Callable[[], list[ManagedProcess]]
) -> T:
    """The result of the first successful attempt. Raises if one of the ``obstacles`` appears
    before."""
    last = CommandError("not asked yet")
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not (ended := obstacles()):
                try:
                    return await attempt()
                except CommandError as error:
                    last = error
                await asyncio.sleep(ASK_AGAIN_SECONDS)
    except TimeoutError:
        told = f"not ready after {READY_SECONDS:g} s: {last}; the log of each server says what it "
        raise CommandError(f"{told}waits for (log/ in its directory)") from last
    raise CommandError("; ".join(process.describe_end() for process in ended))
