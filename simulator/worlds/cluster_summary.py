"""Describes the states of all nodes, for a violation that concerns all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.hosts.host import Host


def summarize_hosts(hosts: Sequence[Host]) -> str:
    """Role, term and progress of each host."""
    said = []
    for host in hosts:
        node = host.node
        if node is None:
            said.append(f"{host.name} down")
            continue
        core = node.core
        said.append(
            f"{host.name} {core.role.value} of term {core.term}, "
            f"log to {core.entry_cache.last_index}, "
            f"durable {core.durable_index}, commit {core.commit_index}, "
            f"applied {node.applied_index}"
        )
    return "; ".join(said)
