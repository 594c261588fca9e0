"""The quorum's short cuts against counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.quorum import VoteResult, majority, quorum_index, vote_result

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
