"""The Raft settings of one broker."""

from __future__ import annotations

from dataclasses import replace

from broker.config.node_config import NodeConfig
from broker.server.environment import BrokerLimits
from dledger.config import RaftConfig


def raft_config(config: NodeConfig, limits: BrokerLimits) -> RaftConfig:
    """The Raft configuration: limits from ``limits`` if given, otherwise from the settings; times
    from the settings."""
    usual = RaftConfig(
        checkpoint_seconds=config.checkpoint_seconds,
        scrub_bytes_per_second=config.scrub_mib_per_second << 20,
        scrub_pass_seconds=config.scrub_pass_seconds,
        snapshot_bytes_per_second=config.refill_mib_per_second << 20,
    )
    return replace(
        limits.raft or usual,
        heartbeat_seconds=config.heartbeat_ms / 1000,
        election_seconds=config.election_timeout_ms / 1000,
        disk_stall_seconds=config.disk_stall_ms / 1000,
        preferred_leader=config.preferred_leader,
        lease_reads=config.lease_reads,
    )
