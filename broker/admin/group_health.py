"""Whether a broker group has a leader and a majority, and how many nodes it may still lose.

The reports of the answering nodes decide. It imports nothing of a broker: commands that ask from
outside use it as well.
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
    """The node that leads, as far as this one knows; else empty."""
    serving: bool
    counts: bool
    """Whether it is a voter and has what it confirmed."""
    last_index: int
    voters: tuple[str, ...]
    old_voters: tuple[str, ...] = ()

    def follows(self, leader: MemberReport) -> bool:
        """Whether this node confirms what that one appends; the leader's own log counts as well."""
        return self.leader == leader.node and self.term == leader.term


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """One broker group. Nodes are named ``n0``, ``n1``, ..."""

    group: str
    leader: str | None
    serving: bool
    """Whether the leader takes writes."""
    voters: int
    in_touch: int
    """Voters that answer, and follow the leader if there is one."""
    has_majority: bool
    may_lose: int
    """This number of those in touch may be lost, and the rest is still a majority."""
    missing: tuple[str, ...]
    """Voters that are not in touch."""

    @property
    def healthy(self) -> bool:
        return self.leader is not None and self.serving and self.has_majority

    @property
    def problem(self) -> str:
        """The mistakes, in words; empty if the group is healthy."""
        problems = []
        if self.leader is None:
            problems.append("it has no leader")
        elif not self.serving:
            problems.append(f"{self.leader} leads, but does not serve yet")
        if not self.has_majority:
            problems.append(
                f"it has no majority: {self.in_touch} of {self.voters} voters are in touch"
                if self.voters
                else "no node of it answers"
            )
        return " and ".join(problems)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "healthy": self.healthy, "problem": self.problem}


def leader_of(reports: Sequence[MemberReport]) -> MemberReport | None:
    """Of two nodes that call themselves leader, the one with the later term is."""
    leaders = [report for report in reports if report.role == LEADER]
    return max(leaders, key=lambda report: report.term, default=None)


def group_health(group: str, reports: Sequence[MemberReport]) -> GroupHealth:
    """Decides by the nodes that answered. The leader knows best who votes, else the node with the
    longest log."""
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
