"""Groups whose settings let a leader answer reads by its lease."""

from __future__ import annotations

from dataclasses import replace

from dledger.config import RaftConfig
from simulator.engine.random_streams import Streams

LEASE_SHARE = 0.25


def with_leases(config: RaftConfig, streams: Streams) -> RaftConfig:
    """Gives leases to a quarter of the groups. Their clocks differ by less than leases allow."""
    return replace(config, lease_reads=streams.stream("leases").random() < LEASE_SHARE)
