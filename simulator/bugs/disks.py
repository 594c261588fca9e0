"""Planted bugs L of disks that lost what they held, and of members that are refilled."""

from __future__ import annotations

from typing import Any

from dledger.changes import Changes
from dledger.configuration import NO_INCARNATION, Configuration
from dledger.elections import Elections
from dledger.holdings import Holdings
from dledger.majorities import Majorities
from simulator.bugs.plant import Bug, Patch


def confirmations_of_any_disk_counted(patch: Patch) -> None:
    """A leader counts what is confirmed on a disk that the log does not name."""
    patch.set(Majorities, "counts", lambda _majorities, _peer: True)


def new_disk_counts_at_once(patch: Patch) -> None:
    """A disk is noted for a voter before it holds what the last one had confirmed."""

    def noted(changes: Changes, found: Configuration, _now: float) -> dict[str, int]:
        told = {changes._node: changes._incarnation}
        for peer in changes._majorities.peers():
            progress = changes._replicator.peers[peer]
            if progress.incarnation:
                told[peer] = progress.incarnation
        return {
            peer: number
            for peer, number in told.items()
            if found.incarnations.get(peer, NO_INCARNATION) != number
        }

    patch.set(Changes, "_incarnations_to_note", noted)


def every_vote_counted(patch: Patch) -> None:
    """A candidate counts the votes of disks that the log does not name, or that lost something."""
    answered = Elections.answered

    def credulous(elections: Elections, sender: str, answer: Any, now: float) -> None:
        trusts, lacks = Configuration.trusts, Holdings.lacks
        Configuration.trusts = lambda _found, _node, _incarnation: True  # type: ignore[method-assign]
        Holdings.lacks = lambda _held, _node, _incarnation, _last: False  # type: ignore[method-assign]
        try:
            answered(elections, sender, answer, now)
        finally:
            Configuration.trusts = trusts  # type: ignore[method-assign]
            Holdings.lacks = lacks  # type: ignore[method-assign]

    patch.set(Elections, "answered", credulous)


WIPED = ("disk wiped", "crash", "one-way link", "partial partition")
LOST = "lacks the committed entry | whose disk lacks what it held | both lead"


def _bug(id_: str, plant: Any, says: str, seeds: int, *kinds: str) -> Bug:
    return Bug(id_, plant, says, seeds, seconds=12.0, kinds=kinds)


BUGS = (
    _bug("L5x", confirmations_of_any_disk_counted, LOST, 60, *WIPED),
    _bug("L6x", new_disk_counts_at_once, LOST, 60, *WIPED),
    _bug("L7x", every_vote_counted, LOST, 20, *WIPED, "old copy put back"),
)
