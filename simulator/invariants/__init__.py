"""The promises of ``docs/safety.md``, one file each, checked after every event of every node.

Each is an :class:`Invariant`. It hears what happens on each host and raises
:class:`~simulator.engine.violation.Violation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.invariants.invariant import Invariant
from simulator.invariants.raft.check_quorum import LeadershipTimeLimits
from simulator.invariants.raft.commit_index import CommitIndex
from simulator.invariants.raft.committed_entries import CommittedEntries
from simulator.invariants.raft.configurations_seen import SeenConfigurations
from simulator.invariants.raft.conflict_probes import FewConflictProbes
from simulator.invariants.raft.coverage import Coverage
from simulator.invariants.raft.durable_before_visible import DurableBeforeVisible
from simulator.invariants.raft.election_safety import OneLeaderPerTerm
from simulator.invariants.raft.leader_append_only import LeaderAppendOnly
from simulator.invariants.raft.leader_completeness import LeaderCompleteness
from simulator.invariants.raft.leader_stickiness import LeaderStickiness
from simulator.invariants.raft.leadership_transfer import LeadershipTransferInOrder
from simulator.invariants.raft.log_matching import LogMatching
from simulator.invariants.raft.lost_disks import LostDisksDoNotElect
from simulator.invariants.raft.membership import ConfigurationFollowsLog
from simulator.invariants.raft.nothing_lost_at_restart import CommittedLogSurvivesRestart
from simulator.invariants.raft.operations_coverage import OperationsCoverage
from simulator.invariants.raft.pre_vote import PreVoteFirst
from simulator.invariants.raft.read_index import ReadIndexSeesCommitted
from simulator.invariants.raft.slow_disk_keeps_leader import SlowDiskKeepsLeader
from simulator.invariants.raft.state_machine_safety import StateMachineSafety
from simulator.invariants.raft.terms_and_votes import TermsAndVotes

if TYPE_CHECKING:
    from simulator.hosts.host import Host

__all__ = ["Invariant", "SeenConfigurations", "raft_invariants"]


def raft_invariants(hosts: Sequence[Host], seen: SeenConfigurations) -> Sequence[Invariant]:
    """A fresh set for one run, of rules for every state machine."""
    committed = CommittedEntries()
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
        LeaderStickiness(),
        SlowDiskKeepsLeader(),
        FewConflictProbes(),
        ConfigurationFollowsLog(seen),
        CommittedLogSurvivesRestart(),
        LostDisksDoNotElect(seen),
        LeadershipTransferInOrder(seen),
        ReadIndexSeesCommitted(committed),
        LeadershipTimeLimits(),
        OperationsCoverage(),
        Coverage(hosts),
    )
