"""The settings of the protocol of one broker."""

from __future__ import annotations

from dataclasses import replace

from broker.config.node_config import NodeConfig
from broker.server.environment import BrokerLimits
from dledger.config import RaftConfig


def raft_config(config: NodeConfig, limits: BrokerLimits) -> RaftConfig:
    """Its limits are those of the settings, or else the ones given; its times are the settings'."""
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
