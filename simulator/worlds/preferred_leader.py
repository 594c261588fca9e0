"""Groups whose settings name a preferred leader: in the end it must lead, if it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.config import RaftConfig
from simulator.engine.random_streams import Streams

if TYPE_CHECKING:
    from simulator.hosts.host import Host

PREFERRED_SHARE = 0.25


def with_preferred_leader(config: RaftConfig, streams: Streams, nodes: int) -> RaftConfig:
    """Names one of the nodes; most groups have none."""
    rng = streams.stream("preferred leader")
    preferred = f"n{rng.randrange(nodes)}" if rng.random() < PREFERRED_SHARE else ""
    return replace(config, preferred_leader=preferred)


def must_transfer_leadership(preferred: str, hosts: Sequence[Host], leader: Host) -> bool:
    """Whether another node is preferred, runs and votes: without faults it is healthy, or will
    be soon."""
    if preferred in ("", leader.name) or leader.node is None:
        return False
    voters = leader.node.core.configuration.voters
    runs = any(host.name == preferred and host.node is not None for host in hosts)
    return runs and preferred in voters
