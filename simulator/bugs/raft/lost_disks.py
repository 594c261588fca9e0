"""Planted bugs L of disks that lost entries: their votes are counted."""

from __future__ import annotations

from typing import Any

from dledger.raft.bootstrap import Bootstrap
from dledger.raft.configuration import NO_INCARNATION, Configuration
from dledger.raft.election import Elections
from dledger.raft.replication_evidence import ReplicationEvidence
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.faults.wiped_voter import WIPED_BESIDE_AN_EMPTY_ONE

LOST = "lacks the committed entry | whose disk lacks what it held | both lead"
bug = BugsOf(seconds=12.0)


@bug("L7x", LOST, 20, "old copy put back", "partition")
def every_vote_counted(patch: Patch) -> None:
    """A candidate counts votes of disks that the log does not name, or that lost something."""

    @patch.around(Elections, "vote_answered")
    def credulous(
        answered: Original[None], elections: Elections, sender: str, answer: Any, now: float
    ) -> None:
        meanwhile = Patch()
        meanwhile.set(ReplicationEvidence, "counts", lambda *_who: True)
        meanwhile.set(ReplicationEvidence, "lacks", lambda _held, _node, _incarnation, _last: False)
        try:
            answered(elections, sender, answer, now)
        finally:
            meanwhile.undo()


@bug("L13x", LOST, 20, WIPED_BESIDE_AN_EMPTY_ONE)
def log_begun_with_a_wiped_voter(patch: Patch) -> None:
    """An empty node takes a wiped voter for a new one and begins a log with it."""
    patch.set(Bootstrap, "may_begin", property(lambda _bootstrap: True))
    wiped_voter_counted_until_the_log_names_disks(patch)


@bug("L14x", LOST, 40, WIPED_BESIDE_AN_EMPTY_ONE, "loss", "crash")
def wiped_voter_counted_until_the_log_names_disks(patch: Patch) -> None:
    """Which disks members were met on is forgotten where the log names none."""

    @patch.instead(ReplicationEvidence, "counts")
    def by_the_log(_known: Any, found: Configuration, node: str, incarnation: int) -> bool:
        return found.incarnations.get(node, NO_INCARNATION) in (NO_INCARNATION, incarnation)
