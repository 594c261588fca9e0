"""What a majority of the voters agrees on. Small, pure, and compared with slow references."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum


class VoteResult(Enum):
    """Where an election stands."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(count: int) -> int:
    """How many of ``count`` voters make a majority."""
    return count // 2 + 1


def quorum_index(match_indexes: Collection[int]) -> int:
    """The highest index that a majority of the voters holds (thesis 3.6.2).

    One match index for each voter, the leader's own durable index among them. Sorted from the
    highest down, the value at place ``majority`` is held by at least that many voters.
    """
    return sorted(match_indexes, reverse=True)[majority(len(match_indexes)) - 1]


def vote_result(voters: Collection[str], votes: Mapping[str, bool]) -> VoteResult:
    """Counts the votes of ``voters``; votes of anybody else do not count."""
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    refused = sum(1 for voter in voters if votes.get(voter) is False)
    needed = majority(len(voters))
    if granted >= needed:
        return VoteResult.WON
    if len(voters) - refused < needed:
        return VoteResult.LOST
    return VoteResult.PENDING


def joint_quorum_index(quorums: Sequence[Collection[str]], held: Mapping[str, int]) -> int:
    """The highest index that a majority of each of the sets of voters holds (thesis 4.3).

    A voter of whom nothing is known holds nothing.
    """
    return min([quorum_index([held.get(voter, -1) for voter in voters]) for voters in quorums])


def joint_vote_result(quorums: Sequence[Collection[str]], votes: Mapping[str, bool]) -> VoteResult:
    """An election is won in all sets of voters, and lost in any."""
    results = [vote_result(voters, votes) for voters in quorums]
    if VoteResult.LOST in results:
        return VoteResult.LOST
    return VoteResult.PENDING if VoteResult.PENDING in results else VoteResult.WON
