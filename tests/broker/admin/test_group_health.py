"""When a broker group is healthy, compared with trying every loss of nodes."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from broker.admin.group_health import GroupHealth, MemberReport, group_health

NODES = [f"n{number}" for number in range(6)]
nodes = st.lists(st.sampled_from(NODES), min_size=1, unique=True).map(sorted)


def report(node: str, voters: list[str], *, leads: str = "", **changed: object) -> MemberReport:
    fields = {
        "node": node,
        "role": "leader" if leads == node else "follower",
        "term": 2,
        "leader": leads,
        "serving": leads == node,
        "counts": True,
        "last_index": 9,
        "voters": tuple(voters),
    }
    return MemberReport(**{**fields, **changed})  # type: ignore[arg-type]  # fields by name


def survives(quorums: list[list[str]], left: set[str]) -> bool:
    return all(2 * len(left & set(voters)) > len(voters) for voters in quorums if voters)


@given(nodes, st.just([]) | nodes, nodes, st.data())
def test_so_many_nodes_may_be_lost_whichever_they_are(
    voters: list[str], old_voters: list[str], up: list[str], data: st.DataObject
) -> None:
    leader = data.draw(st.sampled_from(up))
    away = data.draw(st.sets(st.sampled_from([*up, ""]))) - {leader, ""}
    reports = [
        report(
            node,
            voters,
            leads="" if node in away else leader,
            old_voters=tuple(old_voters),
            counts=data.draw(st.booleans()),
        )
        for node in up
    ]
    health = group_health("broker-a", reports)

    in_touch = {each.node for each in reports if each.counts and each.node not in away}
    quorums = [voters, old_voters]
    members = {*voters, *old_voters}
    assert health.has_majority == survives(quorums, in_touch)
    for lost in range(len(in_touch & members) + 1):
        left = [in_touch - set(dead) for dead in combinations(in_touch & members, lost)]
        all_survive = all(survives(quorums, each) for each in left)
        assert all_survive == (health.has_majority and lost <= health.may_lose)
    assert health.missing == tuple(sorted(members - in_touch))


def health_of(*reports: MemberReport) -> GroupHealth:
    return group_health("broker-a", reports)


VOTERS = ["n0", "n1", "n2"]


def test_who_follows_another_leader_or_term_is_no_part_of_the_majority() -> None:
    leader = report("n0", VOTERS, leads="n0")
    for changed in ({"leader": "n1"}, {"term": 1}, {"counts": False}, {"leader": ""}):
        alone = [report(node, VOTERS, leads="n0", **changed) for node in ("n1", "n2")]
        health = health_of(leader, *alone)
        assert (health.leader, health.in_touch, health.healthy) == ("n0", 1, False)


def test_a_leader_that_does_not_serve_yet_is_not_healthy() -> None:
    followers = [report(node, VOTERS, leads="n0") for node in ("n1", "n2")]
    health = health_of(report("n0", VOTERS, leads="n0", serving=False), *followers)
    assert (health.healthy, health.problem) == (False, "its leader broker-a/n0 does not serve yet")


def test_nodes_are_named_with_their_group_too() -> None:
    health = health_of(*(report(node, VOTERS, leads="n1") for node in ("n0", "n1")))
    found = health.to_json()
    assert (found["leader"], found["leader_node"]) == ("n1", "broker-a/n1")
    assert (found["missing"], found["missing_nodes"]) == (("n2",), ["broker-a/n2"])
    assert health_of().to_json()["leader_node"] is None


def test_a_majority_without_a_leader_is_told_as_such() -> None:
    health = health_of(*(report(node, VOTERS) for node in VOTERS[:2]))
    assert (health.has_majority, health.healthy) == (True, False)
    assert health.problem == "it has no leader"


def test_a_group_of_which_no_node_answers_has_nothing() -> None:
    health = health_of()
    assert (health.healthy, health.may_lose) == (False, 0)
    assert health.problem == "it has no leader and no node of it answers"
