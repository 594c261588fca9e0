"""What a node makes of what the other nodes of the cluster tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.http.cluster_view import ClusterView
from broker.http.json_documents import status_document
from broker.limits import AdminLimits
from tests.broker.single_broker import SingleBroker

OWN = "127.0.0.1:8080"


def status(node: str, **changed: object) -> dict[str, Any]:
    """Of one of three members of broker-b, led by n0."""
    members = {
        f"n{k}": {"peer": "", "address": f"10.0.0.{k}:10911", "http": f"10.0.0.{k}:8080"}
        for k in range(3)
    }
    return {
        "group": "broker-b",
        "node": node,
        "cluster": "DefaultCluster",
        "role": "leader" if node == "n0" else "follower",
        "term": 4,
        "leader": "n0",
        "serving": node == "n0",
        "last_index": 7,
        "commit_index": 7,
        "member": "voter",
        "voters": ["n0", "n1", "n2"],
        "old_voters": [],
        "members": members,
        **changed,
    }


class Others:
    """A NameServer and the other nodes."""

    def __init__(self, names: dict[str, Any], nodes: Mapping[str, object]) -> None:
        self.names = names
        self.nodes = nodes
        self.asked: list[str] = []

    async def cluster_info(self) -> dict[str, Any]:
        return self.names

    async def get(self, address: str, path: str) -> Any:
        self.asked.append(address)
        answer = self.nodes.get(address + path)
        if answer is None:
            raise ConnectionRefusedError
        return answer


def registered(*https: str, gone: str = "") -> dict[str, Any]:
    return {
        "brokerAddrTable": {"broker-b": {}},
        "goneTable": {gone: {}} if gone else {},
        "httpAddrTable": {f"broker {number}": http for number, http in enumerate(https)},
    }


def without_disk(node: dict[str, Any]) -> dict[str, Any]:
    """Other programs write to it between two looks."""
    return {name: value for name, value in node.items() if name != "disk"}


def own(broker: SingleBroker) -> dict[str, Any]:
    """What the node that is asked tells of itself."""
    return without_disk(status_document(broker.broker.context)) | {"http": OWN}


async def look(broker: SingleBroker, others: Others, limit: int = 256) -> dict[str, Any]:
    limits = AdminLimits(nodes_asked_max=limit)
    view = ClusterView(broker.broker.context, others.cluster_info, others.get, limits)
    return await view.document()


async def test_the_nodes_of_another_group_are_found_by_its_members(broker: SingleBroker) -> None:
    others = Others(
        registered("10.0.0.0:8080", gone="broker-c"),
        {
            "10.0.0.0:8080/status": status("n0"),
            "10.0.0.1:8080/status": status("n1"),
            "10.0.0.0:8080/topics": {"topics": [{"name": "orders", "messages": 5}]},
            "10.0.0.0:8080/groups": {"groups": []},
        },
    )
    found = await look(broker, others)
    assert [
        (each["group"], each["healthy"], each["missing"]) for each in found["broker_groups"]
    ] == [("broker-a", True, ()), ("broker-b", True, ("n2",)), ("broker-c", False, ())]
    assert [(node["group"], node["node"], node["role"]) for node in found["nodes"]] == [
        ("broker-a", "n0", "leader"),
        ("broker-b", "n0", "leader"),
        ("broker-b", "n1", "follower"),
        ("broker-b", "n2", "down"),
    ]
    assert found["nodes"][-1]["error"] == "no answer at 10.0.0.2:8080"
    (orders,) = [topic for topic in found["topics"] if topic["name"] == "orders"]
    assert orders["broker_group"] == "broker-b"
    assert OWN not in others.asked


async def test_what_a_group_consumes_here_it_has_to_consume_on_other_broker_groups(
    broker: SingleBroker,
) -> None:
    rows: list[dict[str, object]] = [
        {"group": "g", "topic": "orders", "members": 0, "acknowledged": 1, "lag": 2}
    ]
    topic = {"name": "TBW102", "messages": 5}
    here = [{"group": "g", "topic": "TBW102", "members": 0, "acknowledged": 1, "lag": 2}]
    idle: dict[str, object] = {"topic": None, "members": 0, "acknowledged": 0, "lag": 0}
    rows += [idle | {"group": "h"}, idle | {"group": "idle"}]
    here += [{**here[0], "group": "h"}]
    others = Others(
        registered("10.0.0.0:8080", "10.1.0.0:8080"),
        {
            "10.0.0.0:8080/status": status("n0"),
            "10.0.0.0:8080/topics": {"topics": [topic]},
            "10.0.0.0:8080/groups": {"groups": rows},
            "10.1.0.0:8080/status": status("n0", group="broker-c"),
            "10.1.0.0:8080/topics": {"topics": []},
            "10.1.0.0:8080/groups": {"groups": here},
        },
    )
    groups = (await look(broker, others))["groups"]
    # Of h, which broker-b knows with no topic, there is no row that says it has no lag there.
    assert [(row["group"], row["topic"], row["broker_group"], row["lag"]) for row in groups] == [
        ("g", "TBW102", "broker-b", 5),
        ("g", "TBW102", "broker-c", 2),
        ("g", "orders", "broker-b", 2),
        ("h", "TBW102", "broker-b", 5),
        ("h", "TBW102", "broker-c", 2),
        ("idle", None, "broker-b", 0),
    ]


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"group": 1, "members": {}},
        {**status("n0"), "members": []},
        {**status("n0"), "term": "4"},
        {**status("n0"), "voters": [1]},
        {**status("n0"), "voters": 5},
        {**status("n0"), "old_voters": {"a": 1}},
        {**status("n0"), "node": None},
        {**status("n0"), "members": {"n1": 5, "n2": {"http": 5}}},
        {**status("n0"), "members": {"n1": {"http": "evil/path?x=:80"}}},
    ],
)
async def test_a_nonsensical_answer_does_no_harm(broker: SingleBroker, nonsense: object) -> None:
    bad_rows = [1, {"group": []}, {"name": {}, "messages": "x"}]
    others = Others(
        registered("10.0.0.0:8080", "not an address", "evil/path?:80"),
        {
            "10.0.0.0:8080/status": nonsense,
            "10.0.0.0:8080/topics": {"topics": bad_rows},
            "10.0.0.0:8080/groups": {"groups": bad_rows},
        },
    )
    found = await look(broker, others)
    assert set(others.asked) == {"10.0.0.0:8080"}
    assert {(topic["broker_group"]) for topic in found["topics"]} == {"broker-a"}
    assert without_disk(found["nodes"][0]) == own(broker)


@pytest.mark.parametrize("table", [5, [], "x", None, {"a": 5}])
async def test_a_nonsensical_nameserver_does_no_harm(broker: SingleBroker, table: Any) -> None:
    names = dict.fromkeys(("brokerAddrTable", "goneTable", "httpAddrTable"), table)
    found = await look(broker, Others(names, {}))
    assert [without_disk(node) for node in found["nodes"]] == [own(broker)]


async def test_no_more_nodes_are_asked_than_the_limit_says(broker: SingleBroker) -> None:
    others = Others(registered(*(f"10.0.{k}.1:8080" for k in range(100))), {})
    await look(broker, others, limit=10)
    assert len(others.asked) == 9  # and this node itself


async def test_without_a_nameserver_a_node_shows_its_own_group(broker: SingleBroker) -> None:
    found = await look(broker, Others({}, {}))
    assert [each["group"] for each in found["broker_groups"]] == ["broker-a"]
    assert len(found["nodes"]) == 1
