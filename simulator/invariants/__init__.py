"""The promises of ``docs/safety.md``, one file each, checked after every event of every node.

Each is an :class:`Invariant` that is told what happens on each host and raises
:class:`~simulator.engine.violation.Violation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.invariants.invariant import Invariant
from simulator.invariants.raft.check_quorum import LeadsNoLongerThanItMay
from simulator.invariants.raft.commit_index import CommitIndex
from simulator.invariants.raft.committed_entries import CommittedForEver
from simulator.invariants.raft.configurations_seen import SeenConfigurations
from simulator.invariants.raft.conflict_probes import FewProbes
from simulator.invariants.raft.coverage import Coverage
from simulator.invariants.raft.durable_before_visible import DurableBeforeVisible
from simulator.invariants.raft.election_safety import OneLeaderPerTerm
from simulator.invariants.raft.leader_append_only import LeaderAppendOnly
from simulator.invariants.raft.leader_completeness import LeaderCompleteness
from simulator.invariants.raft.leader_stickiness import StickToTheLeader
from simulator.invariants.raft.leadership_transfer import HandedOverInOrder
from simulator.invariants.raft.log_matching import LogMatching
from simulator.invariants.raft.lost_disks import LostDisksElectNobody
from simulator.invariants.raft.membership import MembersOfTheLog
from simulator.invariants.raft.nothing_lost_at_restart import NothingForgotten
from simulator.invariants.raft.operations_coverage import GroupMarks
from simulator.invariants.raft.pre_vote import PreVoteFirst
from simulator.invariants.raft.read_index import ReadsSeeWhatIsCommitted
from simulator.invariants.raft.slow_disk_keeps_leader import SteadyLeader
from simulator.invariants.raft.state_machine_safety import StateMachineSafety
from simulator.invariants.raft.terms_and_votes import TermsAndVotes

if TYPE_CHECKING:
    from simulator.hosts.host import Host

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
