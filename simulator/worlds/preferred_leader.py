"""Groups whose settings name a preferred leader: in the end it must lead, if it may."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.config import RaftConfig
from simulator.engine.random_streams import Streams

if TYPE_CHECKING:
    from simulator.hosts.host import Host
    from simulator.worlds.raft_cluster import Cluster

PREFERRED_SHARE = 0.25


def with_preferred_leader(config: RaftConfig, streams: Streams, nodes: int) -> RaftConfig:
    """Names one of the nodes; most groups have none."""
    rng = streams.stream("preferred leader")
    preferred = f"n{rng.randrange(nodes)}" if rng.random() < PREFERRED_SHARE else ""
    return replace(config, preferred_leader=preferred)


def must_transfer_leadership(cluster: Cluster, leader: Host) -> bool:
    """Whether another one is preferred, which runs and votes: without faults it is fit to lead, or
    will be soon."""
    preferred = cluster.group.raft.preferred_leader
    if preferred in ("", leader.name) or leader.node is None:
        return False
    voters = leader.node.core.configuration.voters
    return cluster.host(preferred).node is not None and preferred in voters
