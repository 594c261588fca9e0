"""What members know: announced as they dial, and taken for known where the log says so."""

from __future__ import annotations

from dledger.node.member_features import MemberFeatures
from dledger.raft.configuration import Configuration, Configurations
from dledger.wire.features import FEATURES, POP, STATE_PROOF


def features_of_a(
    *voters: str, learners: tuple[str, ...] = ()
) -> tuple[MemberFeatures, Configurations]:
    found = Configurations(Configuration(("a", *voters), learners=learners))
    return MemberFeatures(
        node="a",
        serves=found.current.includes,
        members=lambda: found.current.members,
        members_at=lambda index: found.at(index).members,
    ), found


def test_all_members_must_have_announced_it_learners_too() -> None:
    features, _ = features_of_a("b", learners=("c",))
    assert not features.known_by_all(STATE_PROOF)
    features.announced("b", FEATURES)
    assert not features.known_by_all(STATE_PROOF)
    features.announced("c", FEATURES)
    assert features.known_by_all(STATE_PROOF)
    assert not features.known_by_all("another")


def test_what_a_member_announced_stays_known_without_a_link_and_a_strangers_does_not() -> None:
    features, found = features_of_a("b")
    for peer in "bx":
        features.announced(peer, FEATURES)
        assert features.has(peer, STATE_PROOF)
        features.lost(peer)
        assert not features.has(peer, STATE_PROOF)
    assert features.known_by_all(STATE_PROOF)
    found.append(5, Configuration(("a", "b", "x")))
    assert not features.known_by_all(STATE_PROOF)


def test_a_member_that_comes_back_with_an_earlier_program_knows_it_no_more() -> None:
    features, _ = features_of_a("b")
    features.announced("b", FEATURES)
    features.lost("b")
    features.announced("b", ())
    assert not features.known_by_all(STATE_PROOF)
    features.lost("b")
    assert not features.known_by_all(STATE_PROOF)


def test_what_the_log_uses_its_members_know_and_later_ones_do_not() -> None:
    features, found = features_of_a("b")
    found.append(7, Configuration(("a", "b", "x")))
    features.used(STATE_PROOF, 6)
    assert not features.known_by_all(STATE_PROOF)
    found.truncate(7)
    assert features.known_by_all(STATE_PROOF)


def test_what_the_log_uses_of_several_features_its_members_know_all() -> None:
    features, _ = features_of_a("b")
    features.used(STATE_PROOF, 6)
    assert not features.known_by_all(POP)
    features.used(POP, 7)
    assert features.known_by_all(STATE_PROOF)
    assert features.known_by_all(POP)
    features.announced("b", (POP,))
    features.lost("b")
    features.used(STATE_PROOF, 8)
    assert features.known_by_all(POP)
    assert not features.known_by_all(STATE_PROOF), "what it announced counts"
