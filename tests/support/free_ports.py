"""Addresses that nothing listens at."""

from __future__ import annotations

from pathlib import Path

from broker.cli.local_cluster.port_layout import Ports, plan_cluster
from broker.config.node_addresses import Member


def free_member() -> Member:
    """The addresses of a member, on any free ports."""
    (config,) = plan_cluster(Path(), 1, ["broker-a"], Ports(0, 0, 0))
    return config.members[config.node]
