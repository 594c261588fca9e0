"""Planted bugs K: what the checks of hand-overs, changes, routes and files in mid-run must see."""

from __future__ import annotations

from typing import Any

from dledger.handover import Handover
from dledger.leading import Leading
from dledger.locallog import LocalLog
from dledger.messages import TimeoutNow
from simulator.bugs.plant import Bug, Patch
from simulator.worlds import NODES


def proposals_taken_during_a_hand_over(patch: Patch) -> None:
    """Who has ordered another to campaign goes on taking proposals."""
    check = Leading.check_may_propose

    def lenient(leading: Leading) -> None:
        target, leading.handover.target = leading.handover.target, None
        try:
            check(leading)
        finally:
            leading.handover.target = target

    patch.set(Leading, "check_may_propose", lenient)


def campaign_ordered_before_all_is_there(patch: Patch) -> None:
    """The order to campaign does not wait until the target holds all, and all is committed."""

    def hasty(handover: Handover) -> None:
        if handover.target is not None and not handover._sent:
            handover._sent = True
            handover._outbox.send(handover.target, TimeoutNow(handover._term))

    patch.set(Handover, "go_on", hasty)


def one_entry_too_many_committed(patch: Patch) -> None:
    """What a node takes for committed is one entry more than what is."""
    commit_to = LocalLog.commit_to
    patch.set(LocalLog, "commit_to", lambda local, index: commit_to(local, index + 1))


def _bug(id_: str, plant: Any, says: str, seeds: int, world: str = NODES, *kinds: str) -> Bug:
    return Bug(id_, plant, says, seeds, world=world, kinds=kinds)


HAND_OVER = ("leader hands over",)

BUGS = (
    _bug("K6x", proposals_taken_during_a_hand_over, "to campaign", 20, NODES, *HAND_OVER),
    _bug("K6bx", campaign_ordered_before_all_is_there, "to campaign", 40, NODES, *HAND_OVER),
    _bug("K7x", one_entry_too_many_committed, "committed for ever: ", 5),
)
