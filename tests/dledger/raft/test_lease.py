"""A lease lasts for so long as nobody else can be elected, and no longer."""

from __future__ import annotations

from dledger.config import RaftConfig
from dledger.raft.core import Raft
from dledger.raft.leader import LeaderState
from dledger.raft.raft_state import Role
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.invariants import Invariants

CONFIG = RaftConfig(lease_reads=True)
LEASE = CONFIG.election_seconds * (1 - CONFIG.lease_drift)


def leader() -> tuple[Raft, LeaderState, float]:
    """One of a group of three, and the time."""
    seen = Invariants()
    cluster = seen.cluster = Cluster(("n0", "n1", "n2"), [seen], config=CONFIG, seed=0)
    cluster.run(3.0)
    [core] = [core for core in cluster.cores.values() if core.role is Role.LEADER]
    leader_state = core._raft_state.leader_state
    assert leader_state is not None
    return core, leader_state, cluster.now


def answered(leader_state: LeaderState, asked: float, now: float) -> None:
    """A round that was begun at ``asked`` is answered by all."""
    leader_state.reads.next_round(asked)
    for progress in leader_state.replicator.peers.values():
        progress.round = leader_state.replicator.round
    leader_state.reads.serve(now)


def reads_at_once(core: Raft, now: float) -> bool:
    """Whether a read is answered without a round."""
    core.take()
    core.read_index(7, now)
    return bool(core.take().read_indexes)


def test_a_lease_begins_when_its_round_was_sent() -> None:
    """A voter may have heard it then, and counts from there."""
    core, leader_state, now = leader()
    answered(leader_state, now + 1.0, now + 1.0 + LEASE / 2)
    assert reads_at_once(core, now + 1.0 + LEASE - 0.01)
    assert not reads_at_once(core, now + 1.0 + LEASE)


def test_a_leader_that_hands_over_has_no_lease() -> None:
    """Its successor is elected by order, and nobody waits for the lease."""
    core, leader_state, now = leader()
    answered(leader_state, now + 1.0, now + 1.0)
    assert reads_at_once(core, now + 1.1)
    leader_state.begin_transfer(core.peers[0], now + 1.1)
    assert not reads_at_once(core, now + 1.1)
