"""A member for a group of a local cluster: its files, its ports, its process."""

from __future__ import annotations

from pathlib import Path

from broker.cli.cluster import LocalCluster, LocalNode, local_node, open_cluster, write_config
from broker.cli.failure import UsageError
from broker.cli.layout import plan_member
from broker.cli.processes import end_processes
from broker.config import ConfigError, Endpoint, NodeConfig

REPLACED = "replaced"
"""Where the data of a replaced node is put: ``<data>/replaced/<group>/<node>-<number>``."""


def local_cluster(directory: Path, group: str) -> LocalCluster | None:
    """The cluster in ``directory`` if it has such a group."""
    if not any(directory.glob("*/*/node.toml")):
        return None
    cluster = open_cluster(directory)
    return cluster if group in cluster.groups else None


def start_new_node(cluster: LocalCluster, group: str, node: str, address: str | None) -> LocalNode:
    """Makes the files of a node that waits to be added, and starts it.

    ``address`` is where clients are to find it; None for any free port.
    """
    name = f"{group}/{node}"
    like = next(found.config for found in cluster.nodes.values() if found.config.group == group)
    known = {
        found.config.node: found.config.own
        for found in cluster.nodes.values()
        if found.config.group == group and found.config.node != node
    }
    try:
        own = plan_member(None if address is None else Endpoint.parse(address))
        config = NodeConfig(
            **{
                **{field: getattr(like, field) for field in like.__dataclass_fields__},
                "node": node,
                "data": str(cluster.directory.absolute() / group / node),
                "members": {**known, node: own},
                "join": True,
            }
        )
    except ConfigError as error:
        raise UsageError(f"{name}: {error}") from error
    Path(config.data).mkdir(parents=True)
    write_config(config)
    started = local_node(config)
    started.process.start()
    return started


def put_aside(cluster: LocalCluster, group: str, node: str) -> Path | None:
    """Ends a node of the cluster and moves its data away; returns to where, None if it had none."""
    found = cluster.nodes.get(f"{group}/{node}")
    if found is None:
        return None
    end_processes([found.process], kill=False)
    home = cluster.directory / REPLACED / group
    home.mkdir(parents=True, exist_ok=True)
    number = 1
    while (home / f"{node}-{number}").exists():
        number += 1
    return Path(found.config.data).rename(home / f"{node}-{number}")
