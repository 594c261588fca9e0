"""The protocol core of a node as its store recovered it."""

from __future__ import annotations

from collections.abc import Collection

from dledger.config import RaftConfig
from dledger.raft.configuration import Configurations
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.health import OwnHealth
from dledger.raft.raft_state import Chance
from dledger.raft.replication_evidence import MemberEvidence
from store.replica import ReplicaStore


def recovered_core(
    *,
    node: str,
    voters: Collection[str],
    store: ReplicaStore,
    rng: Chance,
    now: float,
    config: RaftConfig,
    sync_flush: bool,
    health: OwnHealth,
) -> Raft:
    """``voters`` count where neither the log nor its checkpoint says who is a member."""
    found, checkpoint = store.recovered, store.recovered.checkpoint
    return Raft(
        node=node,
        configurations=Configurations.recovered(
            voters,
            -1 if checkpoint is None else checkpoint.index,
            b"" if checkpoint is None else checkpoint.configuration,
            found.configurations,
        ),
        incarnation=found.incarnation,
        log=EntryCache(
            first_index=found.first_index,
            last_index=found.last_index,
            term_starts=found.term_starts,
            end_position=found.end_position,
            chain_crc=found.last_chain_crc,
            tail=found.tail,
            tail_base=found.tail_base,
            cache_bytes_max=config.cache_bytes_max,
        ),
        segment_size=store.segment_size,
        rng=rng,
        now=now,
        config=config,
        term=found.term,
        vote=found.vote,
        commit_index=found.commit_index,
        sync_flush=sync_flush,
        evidence=[MemberEvidence(*held) for held in found.held],
        health=health,
    )
