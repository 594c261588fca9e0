"""The health of a broker group: its leader, its majority, and how many nodes it may still lose.

The reports of the answering nodes decide. The module imports nothing of a broker, because commands
use it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dledger.raft.quorum import majority

LEADER = "leader"


@dataclass(frozen=True, slots=True)
class MemberReport:
    """The report of one node of a group."""

    node: str
    role: str
    term: int
    leader: str
    """The leader that this node knows; empty if none."""
    serving: bool
    counts: bool
    """Whether it is a voter that still has all entries that it confirmed."""
    last_index: int
    voters: tuple[str, ...]
    old_voters: tuple[str, ...] = ()

    def follows(self, leader: MemberReport) -> bool:
        """Whether this node confirms the entries of ``leader``; true for the leader itself."""
        return self.leader == leader.node and self.term == leader.term


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """One broker group. ``leader`` and ``missing`` name nodes within it: ``n0``, ``n1``, ..."""

    group: str
    leader: str | None
    serving: bool
    """Whether the leader takes writes."""
    voters: int
    in_touch: int
    """The number of voters that answer, and follow the leader if there is one."""
    has_majority: bool
    may_lose: int
    """How many of the voters in touch may be lost without losing the majority."""
    missing: tuple[str, ...]
    """Voters that are not in touch."""

    @property
    def healthy(self) -> bool:
        return self.leader is not None and self.serving and self.has_majority

    @property
    def leader_node(self) -> str | None:
        """The leader as ``group/node``."""
        return None if self.leader is None else f"{self.group}/{self.leader}"

    @property
    def missing_nodes(self) -> list[str]:
        """``missing`` as ``group/node``."""
        return [f"{self.group}/{node}" for node in self.missing]

    @property
    def problem(self) -> str:
        """The problems as text; empty if the group is healthy."""
        problems = []
        if self.leader is None:
            problems.append("it has no leader")
        elif not self.serving:
            problems.append(f"its leader {self.leader_node} does not serve yet")
        if not self.has_majority:
            problems.append(
                f"it has no majority: {self.in_touch} of {self.voters} voters are in touch"
                if self.voters
                else "no node of it answers"
            )
        return " and ".join(problems)

    def to_json(self) -> dict[str, object]:
        return {
            **asdict(self),
            "leader_node": self.leader_node,
            "missing_nodes": self.missing_nodes,
            "healthy": self.healthy,
            "problem": self.problem,
        }


def leader_of(reports: Sequence[MemberReport]) -> MemberReport | None:
    """The leader. Of two nodes that claim to lead, the one with the later term."""
    leaders = [report for report in reports if report.role == LEADER]
    return max(leaders, key=lambda report: report.term, default=None)


def group_health(group: str, reports: Sequence[MemberReport]) -> GroupHealth:
    """The health by the nodes that answered. The voters are those of the leader's report; without a
    leader, of the report with the longest log."""
    leader = leader_of(reports)
    best = leader or max(reports, key=lambda each: (each.term, each.last_index), default=None)
    quorums = [] if best is None else [set(voters) for voters in (best.voters, best.old_voters)]
    quorums = [voters for voters in quorums if voters]
    in_touch = {
        report.node
        for report in reports
        if report.counts and (leader is None or report.follows(leader))
    }
    spare = min((len(in_touch & voters) - majority(len(voters)) for voters in quorums), default=-1)
    voters = set().union(*quorums)
    return GroupHealth(
        group=group,
        leader=None if leader is None else leader.node,
        serving=leader is not None and leader.serving,
        voters=len(voters),
        in_touch=len(in_touch & voters),
        has_majority=spare >= 0,
        may_lose=max(spare, 0),
        missing=tuple(sorted(voters - in_touch)),
    )
