"""What `dledger status` makes of what the members of a group tell."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import AsyncMock

from broker.cluster_admin.admin_client import AdminClient, NoAnswerError
from broker.cluster_admin.broker_names import BrokerName
from broker.cluster_admin.cluster_view import assemble_group, view_groups


def told(
    node: str, role: str, *, term: int = 3, last: int = 10, serving: bool = False
) -> dict[str, str]:
    members = {
        name: {"peer": f"p{name}", "address": f"a{name}", "http": f"h{name}"}
        for name in ("n0", "n1", "n2")
    }
    return {
        "raftNode": node,
        "raftRole": role,
        "raftTerm": str(term),
        "raftServing": "true" if serving else "false",
        "raftLastIndex": str(last),
        "raftCommitIndex": str(last - 1),
        "raftAppliedIndex": str(last - 2),
        "raftMembers": json.dumps(members),
        "pid": "42",
        "httpAddress": f"h{node}",
    }


def test_the_lag_is_counted_from_the_leaders_last_entry() -> None:
    group = assemble_group(
        "broker-a",
        {
            "n0": told("n0", "follower", last=7),
            "n1": told("n1", "leader", last=10, serving=True),
            "n2": told("n2", "follower", last=10),
        },
    )

    assert group.leader == "broker-a/n1"
    assert group.serves
    assert [(node.node, node.lag_entries) for node in group.nodes] == [
        ("broker-a/n0", 3),
        ("broker-a/n1", 0),
        ("broker-a/n2", 0),
    ]


def test_a_member_that_does_not_answer_is_down_and_keeps_its_addresses() -> None:
    group = assemble_group("broker-a", {"n1": told("n1", "leader", serving=True)})

    down = group.nodes[2]
    assert (down.role, down.pid, down.lag_entries) == ("down", None, None)
    assert (down.address, down.http) == ("an2", "hn2")


def test_of_two_that_call_themselves_leader_the_later_term_counts() -> None:
    group = assemble_group(
        "broker-a",
        {"n0": told("n0", "leader", term=3), "n1": told("n1", "leader", term=4, serving=True)},
    )

    assert group.leader == "broker-a/n1"
    assert group.term == 4


def test_without_a_leader_nobody_lags_and_nothing_serves() -> None:
    group = assemble_group("broker-a", {"n0": told("n0", "candidate")})

    assert group.leader is None
    assert not group.serves
    assert group.nodes[0].lag_entries is None


def test_a_leader_that_has_not_applied_its_first_entry_does_not_serve() -> None:
    group = assemble_group("broker-a", {"n0": told("n0", "leader", serving=False)})

    assert group.leader == "broker-a/n0"
    assert not group.serves


def voting(node: str, leader: str, *, term: int = 3, member: str = "voter") -> dict[str, str]:
    """What one of three voters says that knows who leads."""
    role = "leader" if node == leader else "follower"
    return told(node, role, term=term, serving=node == leader) | {
        "raftLeader": leader,
        "raftMember": member,
        "raftVoters": json.dumps(["n0", "n1", "n2"]),
    }


def test_a_node_is_shown_where_it_says_that_it_listens() -> None:
    own = {"peer": "moved:1", "client": "moved:2", "http": "moved:3"}
    table = voting("n0", "n1") | {"raftOwnMember": json.dumps(own), "httpAddress": "moved:3"}
    group = assemble_group("broker-a", {"n0": table, "n1": voting("n1", "n1")})

    assert [(node.address, node.http) for node in group.nodes] == [
        ("moved:2", "moved:3"),
        ("an1", "hn1"),
        ("an2", "hn2"),
    ]


def test_a_group_is_healthy_with_a_leader_and_a_majority() -> None:
    tables = {node: voting(node, "n1") for node in ("n0", "n1", "n2")}
    whole, two, one = (
        assemble_group("broker-a", {node: tables[node] for node in nodes}).health
        for nodes in (("n0", "n1", "n2"), ("n0", "n1"), ("n1",))
    )

    assert whole is not None
    assert two is not None
    assert one is not None
    assert (whole.healthy, whole.may_lose, whole.missing) == (True, 1, ())
    assert (two.healthy, two.may_lose, two.missing) == (True, 0, ("n2",))
    assert (one.healthy, one.has_majority, one.missing) == (False, False, ("n0", "n2"))
    assert one.problem == "it has no majority: 1 of 3 voters are in touch"


def test_who_is_no_member_by_the_leaders_word_is_not_shown() -> None:
    answers = {
        "n1": told("n1", "leader", serving=True),
        "n4": told("n4", "follower"),  # removed, and it does not know it
    }
    assert [node.node for node in assemble_group("broker-a", answers).nodes] == [
        "broker-a/n0",
        "broker-a/n1",
        "broker-a/n2",
    ]


def test_without_a_leader_whoever_answers_is_shown() -> None:
    group = assemble_group("broker-a", {"n4": told("n4", "follower")})
    assert [node.node for node in group.nodes][-1] == "broker-a/n4"


def test_earlier_names_of_keys_are_read_and_written() -> None:
    tables = {
        "n0": told("n0", "leader") | {"repaired": '["entry 7"]', "mended": '["entry 7"]'},
        "n1": told("n1", "follower") | {"mended": '["entry 8"]'},
    }
    group = replace(assemble_group("broker-a", tables), unregistered_seconds=5.0)
    document = group.to_json()

    repaired = [["entry 7"], ["entry 8"], []]
    assert [node.repaired for node in group.nodes] == repaired
    for key in ("repaired", "mended"):
        assert [node[key] for node in document["nodes"]] == repaired
    assert document["unregistered_seconds"] == document["gone_seconds"] == 5.0


async def test_registered_nodes_that_hang_are_shown_as_down() -> None:
    admin = AsyncMock(spec=AdminClient)
    named = BrokerName("broker-a", "DefaultCluster", {0: "a:1", 2: "a:2", 3: "a:3"})
    admin.broker_names.return_value = [named]
    admin.departed_brokers.return_value = []
    admin.ask.side_effect = NoAnswerError("no answer from a")
    (group,) = await view_groups(admin)
    assert not group.healthy
    assert group.unregistered_seconds is None
    assert [(node.node, node.address, node.role) for node in group.nodes] == [
        ("broker-a/?", "a:1", "down"),
        ("broker-a/n1", "a:2", "down"),
        ("broker-a/n2", "a:3", "down"),
    ]
