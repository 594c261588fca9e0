"""Adds and removes the files and processes of members of a local group."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from broker.cli.local_cluster.atomic_file import write_atomically
from broker.cli.local_cluster.local_cluster import (
    REMOVED_FILE,
    LocalCluster,
    LocalNode,
    local_node,
    open_cluster,
    write_config,
)
from broker.cli.local_cluster.managed_processes import end_processes
from broker.cli.local_cluster.port_layout import plan_member
from broker.command_error import CommandError, UsageError
from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.config.setting_checks import ConfigError
from broker.remoting.protocol.addresses import parse_name_servers
from dledger.wire.endpoint import Endpoint, EndpointError, join_host_port

REPLACED = "replaced"
"""The directory for the data of replaced nodes: ``<data>/replaced/<group>/<node>-<number>``."""

LOCAL_HOSTS = {"localhost": "127.0.0.1"}


def local_cluster(directory: Path, group: str, namesrv: str) -> LocalCluster | None:
    """The cluster in ``directory``, if it belongs to ``namesrv`` and has such a group.

    The check of ``namesrv`` is needed because another cluster may have a group of that name.
    """
    if not any(directory.glob("*/*/node.toml")):
        return None
    cluster = open_cluster(directory)
    asked = set()
    for address in parse_name_servers(namesrv):
        host, port = Endpoint.parse(address)
        asked.add(join_host_port(LOCAL_HOSTS.get(host, host), port))
    is_meant = group in cluster.groups and str(cluster.namesrv) in asked
    return cluster if is_meant else None


def start_member(cluster: LocalCluster, group: str, node: str, address: str) -> LocalNode | None:
    """Starts a node that is to be added, unless it runs. Missing files are made.

    ``address`` is its address for clients. The other two addresses stay, or get the next ports.
    Returns None if nothing was started.
    """
    name = f"{group}/{node}"
    found = _found(cluster, name)
    if found is not None and found.process.pid is not None:
        return None
    try:
        own = _addresses(cluster, found, Endpoint.parse(address))
        if found is not None:
            members = {**found.config.members, node: own}
            config = replace(found.config, members=members, join=True)
        else:
            config = _new_config(cluster, group, node, own)
    except (ConfigError, EndpointError) as error:
        raise UsageError(f"{name}: {error}") from error
    write_config(config)
    Path(config.data, REMOVED_FILE).unlink(missing_ok=True)
    started = local_node(config)
    started.process.start()
    return started


def _addresses(cluster: LocalCluster, found: LocalNode | None, address: Endpoint) -> Member:
    if found is not None:
        return found.config.own._replace(address=address)
    known = [each.config.own for each in (*cluster.nodes.values(), *cluster.removed.values())]
    return plan_member(address, known)


def _new_config(cluster: LocalCluster, group: str, node: str, own: Member) -> NodeConfig:
    group_nodes = [each.config for each in cluster.nodes.values() if each.config.group == group]
    return replace(
        group_nodes[0],
        node=node,
        data=str(cluster.directory.absolute() / group / node),
        members={**{config.node: config.own for config in group_nodes}, node: own},
        join=True,
    )


def mark_removed(config: NodeConfig) -> None:
    """Notes that `up` is not to start the node. Raises ``OSError``."""
    write_atomically(
        Path(config.data, REMOVED_FILE),
        f"{config.name} was removed from its group. `dledger member add` adds it again.\n",
    )


def _found(cluster: LocalCluster, name: str) -> LocalNode | None:
    """The node, also if it is marked as removed: it marks itself, and runs on until it is
    drained."""
    return cluster.nodes.get(name) or cluster.removed.get(name)


def retire(cluster: LocalCluster, group: str, node: str) -> bool:
    """Stops a removed node and marks its directory, so that `up` does not start it. Its data stays.
    Returns whether the cluster has the node."""
    name = f"{group}/{node}"
    found = _found(cluster, name)
    if found is None:
        return False
    try:
        mark_removed(found.config)
    except OSError as error:
        raise CommandError(
            f"{name} was removed from its group, but {error.filename} cannot be written "
            f"({error.strerror}): `dledger up` would start it again"
        ) from error
    end_processes([found.process], kill=False)
    return True


def delete_data(cluster: LocalCluster, group: str, node: str) -> None:
    """Deletes the data of a removed node. Its ``node.toml`` is deleted last: if anything fails
    before, the node is still known as removed, and this can be repeated."""
    name = f"{group}/{node}"
    home = Path({**cluster.removed, **cluster.nodes}[name].config.data)
    kept = {home / "node.toml", home / REMOVED_FILE}
    try:
        for path in set(home.iterdir()) - kept:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.rmtree(home)
    except OSError as error:
        raise CommandError(
            f"{name} was removed, but {error.filename} cannot be deleted ({error.strerror})"
        ) from error


def put_aside(cluster: LocalCluster, group: str, node: str) -> Path | None:
    """Stops a node of the cluster and moves its data away. Returns the new directory, or None
    without data."""
    found = _found(cluster, f"{group}/{node}")
    if found is None:
        return None
    end_processes([found.process], kill=False)
    home = cluster.directory / REPLACED / group
    home.mkdir(parents=True, exist_ok=True)
    number = 1
    while (home / f"{node}-{number}").exists():
        number += 1
    return Path(found.config.data).rename(home / f"{node}-{number}")
