"""The quorum's short cuts against counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.raft.quorum import (
    VoteResult,
    joint_quorum_index,
    joint_vote_result,
    majority,
    quorum_index,
    vote_result,
)

VOTERS = ("n0", "n1", "n2", "n3", "n4", "n5", "n6")


def counted_quorum_index(matches: list[int]) -> int:
    """The highest index that more than half hold, found by trying each."""
    held = [
        i for i in range(-1, max(matches) + 1) if sum(m >= i for m in matches) * 2 > len(matches)
    ]
    return held[-1]


@given(st.lists(st.integers(-1, 12), min_size=1, max_size=7))
def test_the_quorum_index_is_what_counting_finds(matches: list[int]) -> None:
    assert quorum_index(matches) == counted_quorum_index(matches)


@given(st.integers(1, 9))
def test_two_majorities_share_a_voter_and_none_is_larger_than_needed(count: int) -> None:
    assert 2 * majority(count) > count
    assert 2 * (majority(count) - 1) <= count


@given(st.integers(1, 7), st.dictionaries(st.sampled_from(VOTERS), st.booleans()))
def test_an_election_is_decided_as_soon_as_the_missing_votes_cannot_change_it(
    count: int, votes: dict[str, bool]
) -> None:
    voters = VOTERS[:count]
    cast = {voter: votes[voter] for voter in voters if voter in votes}
    missing = count - len(cast)
    yes = sum(cast.values())
    if 2 * yes > count:
        expected = VoteResult.WON
    elif 2 * (yes + missing) <= count:
        expected = VoteResult.LOST
    else:
        expected = VoteResult.PENDING
    assert vote_result(voters, votes) is expected


def test_votes_of_strangers_do_not_count() -> None:
    assert vote_result(("n0", "n1", "n2"), {"n0": True, "n8": True}) is VoteResult.PENDING


def voter_sets() -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(VOTERS), min_size=1, max_size=5)


def is_quorum(sets: tuple[frozenset[str], ...], nodes: frozenset[str]) -> bool:
    return all(2 * len(voters & nodes) > len(voters) for voters in sets)


def quorums(sets: tuple[frozenset[str], ...]) -> list[frozenset[str]]:
    """Every set of nodes with a majority of each set of voters, found by trying all."""
    nodes = sorted(frozenset().union(*sets))
    subsets = (
        frozenset(name for place, name in enumerate(nodes) if bits >> place & 1)
        for bits in range(1 << len(nodes))
    )
    return [subset for subset in subsets if is_quorum(sets, subset)]


@given(voter_sets(), voter_sets(), st.dictionaries(st.sampled_from(VOTERS), st.integers(0, 9)))
def test_the_index_of_a_joint_quorum_is_what_trying_all_quorums_finds(
    old: frozenset[str], new: frozenset[str], held: dict[str, int]
) -> None:
    found = joint_quorum_index((old, new), held)
    tried = [min(held.get(name, -1) for name in quorum) for quorum in quorums((old, new))]
    assert found == max(tried)


@given(voter_sets(), voter_sets(), st.dictionaries(st.sampled_from(VOTERS), st.booleans()))
def test_a_joint_election_is_won_by_a_quorum_and_lost_when_none_can_come_together(
    old: frozenset[str], new: frozenset[str], votes: dict[str, bool]
) -> None:
    granted = frozenset(name for name, vote in votes.items() if vote)
    possible = frozenset(name for name in VOTERS if votes.get(name, True))
    if is_quorum((old, new), granted):
        expected = VoteResult.WON
    elif not is_quorum((old, new), possible):
        expected = VoteResult.LOST
    else:
        expected = VoteResult.PENDING
    assert joint_vote_result((old, new), votes) is expected


@given(voter_sets(), voter_sets())
def test_any_two_quorums_along_a_change_share_a_voter(
    old: frozenset[str], new: frozenset[str]
) -> None:
    """Of the old voters with the joint, of the joint with itself, and of the joint with the new."""
    joint = quorums((old, new))
    for one, other in ((quorums((old,)), joint), (joint, joint), (joint, quorums((new,)))):
        assert all(a & b for a in one for b in other)
