"""Planted bugs L of reads by index and by lease."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import simulator.worlds.cluster
from dledger.node.linearizable_reads import LinearizableReads
from dledger.raft.raft_state import RaftState, Role
from dledger.raft.read_index import LeaderReads, ReadAsked
from dledger.raft.ready import ReadIndex
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import FOLLOWERS

STALE = "was committed when it was asked | is not linearizable"
"""A broker that answers a read from an old state is seen first; then the answers of clients."""
bug = BugsOf(FOLLOWERS, seconds=8.0)


@bug("L8x", STALE, 120, "crash", "slow disk", "delay")
def read_from_before_the_term(patch: Patch) -> None:
    """A leader answers reads from its commit index before an entry of its own is committed."""

    @patch.around(LeaderReads, "__init__")
    def at_once(begin: Original[None], reads: LeaderReads, **parts: Any) -> None:
        begin(reads, **{**parts, "first_index": -1})


@bug("L9x", STALE, 20, "crash", "partition", "pause")
def read_before_it_is_applied(patch: Patch) -> None:
    """A read is answered from the applied state before its index is applied."""

    @patch.around(LinearizableReads, "answered")
    def answered(told: Original[None], reads: LinearizableReads, answer: ReadIndex) -> None:
        known = None if answer.index is None else -1
        told(reads, ReadIndex(answer.id, known))


@bug("L10x", STALE, 60, "partial partition", "pause")
def read_confirmed_by_nobody(patch: Patch) -> None:
    """A leader answers reads at once, without asking a majority."""

    @patch.instead(LeaderReads, "ask")
    def at_once(reads: LeaderReads, asker: str, number: int, _now: float) -> None:
        index = max(reads._raft_log.commit_index, reads._first_index)
        reads._answer(ReadAsked(asker, number, index))


@bug("L11x", STALE, 60, "partition", "crash")
def lease_not_heeded_by_voters(patch: Patch) -> None:
    """A voter gives up the lease at once after a broken link or a restart."""
    _in_all_groups(patch)

    @patch.instead(RaftState, "is_led")
    def is_led(raft_state: RaftState, now: float) -> bool:
        if raft_state.role is Role.LEADER:
            return True
        known = raft_state.leader is not None and not raft_state._set_by_stranger
        return known and now - raft_state.leader_heard_at < raft_state._config.election_seconds

    @patch.instead(RaftState, "hasten_election")
    def hurry(raft_state: RaftState, now: float) -> None:
        soon = now + raft_state._draw(raft_state._config.lost_leader_seconds)
        raft_state.election_at = min(raft_state.election_at, soon)


@bug("L12x", STALE, 60, "partition", "pause")
def lease_without_an_end(patch: Patch) -> None:
    """A lease never expires."""
    _in_all_groups(patch)

    @patch.instead(LeaderReads, "_extend_lease")
    def extend(reads: LeaderReads, confirmed: int) -> None:
        if any(number <= confirmed for number in reads._round_sent_at):
            reads._lease_until = float("inf")


def _in_all_groups(patch: Patch) -> None:
    """A quarter of the groups have leases; a bug of leases needs these groups."""
    patch.set(
        simulator.worlds.cluster,
        "with_leases",
        lambda config, _streams: replace(config, lease_reads=True),
    )
