"""Planted bugs L of leadership: what a leader must do first, and must notice."""

from __future__ import annotations

from collections.abc import Callable

from dledger.node.leadership_announcer import LeadershipAnnouncer
from dledger.node.proposals import Proposals
from dledger.raft.leader import LeaderState
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.view import RaftView
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS
from store.log.entry import Entry, EntryKind

bug = BugsOf()


@bug("L1x", "no majority has answered", 40, "partial partition", seconds=10.0)
def leader_that_nobody_hears_goes_on(patch: Patch) -> None:
    """A leader does not check whether a majority still answers."""
    patch.set(QuorumTracker, "heard_since", lambda _quorum_tracker, _since: True)


@bug("L2x", "not within", 5)
def term_begun_without_an_entry(patch: Patch) -> None:
    """A leader begins its term without an entry of its own."""

    @patch.around(LeaderState, "_add")
    def silent(add: Original[int], leader_state: LeaderState, kind: EntryKind, body: bytes) -> int:
        return (
            leader_state.first_index if kind is EntryKind.NO_OP else add(leader_state, kind, body)
        )


@bug("L3x", "cannot be applied", 40, "crash", "slow disk", world=BROKERS, seconds=8.0)
def writes_taken_before_the_first_entry_is_applied(patch: Patch) -> None:
    """A new leader takes proposals at once, before it has applied its log."""

    @patch.around(LeadershipAnnouncer, "announce")
    def at_once(announce: Original[None], announcer: LeadershipAnnouncer) -> None:
        meanwhile = Patch()
        meanwhile.set(RaftView, "term_first_index", property(lambda _core: -1))
        try:
            announce(announcer)
        finally:
            meanwhile.undo()


@bug("L4x", "which nobody applied", 40)
def entry_of_another_leader_taken_for_the_own(patch: Patch) -> None:
    """Proposals outlive a leadership, and any entry at their index acknowledges them."""

    @patch.instead(Proposals, "applied")
    def applied(proposals: Proposals, entry: Entry, _applied_at: float) -> None:
        waiting = proposals._waiting
        while waiting and waiting[0].index <= entry.index:
            done: Callable[[None], None] = waiting.popleft().done
            done(None)

    patch.set(Proposals, "drop", lambda _proposals: None)
