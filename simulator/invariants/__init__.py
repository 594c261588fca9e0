"""The promises of ``docs/safety.md``, one file each, checked after every event of every node.

Each is an :class:`Invariant` that is told what happens on each host and raises
:class:`~simulator.violation.Violation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.invariants.appendonly import LeaderAppendOnly
from simulator.invariants.base import Invariant
from simulator.invariants.commit import CommitIndex
from simulator.invariants.committed import CommittedForEver
from simulator.invariants.completeness import LeaderCompleteness
from simulator.invariants.configurations import SeenConfigurations
from simulator.invariants.coverage import Coverage
from simulator.invariants.durability import DurableBeforeVisible
from simulator.invariants.election import OneLeaderPerTerm
from simulator.invariants.groupmarks import GroupMarks
from simulator.invariants.handedover import HandedOverInOrder
from simulator.invariants.kept import NothingForgotten
from simulator.invariants.ledlong import LeadsNoLongerThanItMay
from simulator.invariants.lostdisks import LostDisksElectNobody
from simulator.invariants.matching import LogMatching
from simulator.invariants.membership import MembersOfTheLog
from simulator.invariants.newest import ReadsSeeWhatIsCommitted
from simulator.invariants.prevote import PreVoteFirst
from simulator.invariants.probes import FewProbes
from simulator.invariants.safety import StateMachineSafety
from simulator.invariants.steady import SteadyLeader
from simulator.invariants.stickiness import StickToTheLeader
from simulator.invariants.terms import TermsAndVotes

if TYPE_CHECKING:
    from simulator.host import Host

__all__ = ["Invariant", "SeenConfigurations", "raft_invariants"]


def raft_invariants(hosts: Sequence[Host], seen: SeenConfigurations) -> Sequence[Invariant]:
    """A fresh set for one run, of what holds whatever the nodes replicate."""
    committed = CommittedForEver()
    return (
        seen,
        OneLeaderPerTerm(),
        TermsAndVotes(),
        LeaderAppendOnly(),
        LogMatching(),
        CommitIndex(),
        DurableBeforeVisible(),
        committed,
        LeaderCompleteness(committed),
        StateMachineSafety(),
        PreVoteFirst(seen),
        StickToTheLeader(),
        SteadyLeader(),
        FewProbes(),
        MembersOfTheLog(seen),
        NothingForgotten(),
        LostDisksElectNobody(seen),
        HandedOverInOrder(seen),
        ReadsSeeWhatIsCommitted(committed),
        LeadsNoLongerThanItMay(),
        GroupMarks(),
        Coverage(hosts),
    )
