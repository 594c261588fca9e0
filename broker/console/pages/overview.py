"""The first page: the health of the cluster, its nodes, and charts of the last hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.console.visits.templating import plural
from broker.console.visits.visit import Page, Visit

GOOD, WARNING, BAD = "good", "warning", "bad"
_ORDER = (GOOD, WARNING, BAD)


class Health(NamedTuple):
    """The health of a broker group: a grade, one sentence, and details."""

    group: str
    grade: str
    headline: str
    detail: str
    leader: str | None
    may_lose: int = 0


def health_of(document: Mapping[str, Any]) -> Health:
    """The health of a group, from the document of ``/nodes``."""
    group, leader = document["group"], document["leader"]
    if not document["healthy"]:
        serving = leader is not None and document["serving"] and document["has_majority"]
        told = document["problem"]
        tail = "" if serving else " Messages cannot be stored there now."
        return Health(group, BAD, "Does not serve", f"{told[:1].upper()}{told[1:]}.{tail}", leader)
    in_touch = f"{document['in_touch']} of {plural(document['voters'], 'voter')} in touch"
    missing = f", missing {', '.join(document['missing'])}" if document["missing"] else ""
    detail = f"{in_touch}{missing}."
    if document["may_lose"]:
        return Health(
            group,
            WARNING if document["missing"] else GOOD,
            f"Can lose {plural(document['may_lose'], 'more node')}",
            detail,
            leader,
            document["may_lose"],
        )
    alone = document["voters"] == 1
    headline = "Serves, on a single node" if alone else "Cannot lose another node"
    return Health(group, WARNING, headline, detail, leader)


def overall(healths: list[Health]) -> Health:
    """The worst health, which an operator must know."""
    worst = max(healths, key=lambda each: _ORDER.index(each.grade))
    if len(healths) == 1:
        return worst
    if worst.grade == GOOD:
        least = min(healths, key=lambda each: each.may_lose)
        return least._replace(headline=f"Each group can lose {plural(least.may_lose, 'more node')}")
    return worst._replace(headline=f"{worst.group}: {worst.headline}")


def node_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes, each with its lag behind the leader."""
    ends: dict[str, int] = {}
    for node in document["nodes"]:
        if "last_index" in node:
            ends[node["group"]] = max(ends.get(node["group"], 0), node["commit_index"])
    rows = []
    for node in document["nodes"]:
        behind = ends.get(node["group"], 0) - node["applied_index"] if "term" in node else None
        rows.append(
            {
                "id": f"{node['group']}-{node['node']}",
                "name": f"{node['group']}/{node['node']}",
                "behind": None if behind is None else max(behind, 0),
                "disk_free_percent": _free_percent(node.get("disk")),
                "address": _address(node),
                **{
                    key: node.get(key)
                    for key in ("group", "node", "role", "member", "serving", "term", "http")
                },
                **{key: node.get(key) for key in ("boot_timestamp", "error", "disk", "refilling")},
                "put_messages": node.get("put_messages", 0),
            }
        )
    return rows


def _address(node: Mapping[str, Any]) -> str:
    own = node.get("members", {}).get(node["node"], {})
    return str(own.get("address", "")) if isinstance(own, dict) else ""


def _free_percent(disk: object) -> int | None:
    if not isinstance(disk, dict) or not disk.get("total"):
        return None
    return int(100 * disk["free"] / disk["total"])


def findings(document: Mapping[str, Any]) -> int:
    """The number of findings of nodes about their own data."""
    return sum(
        len(node.get("damage") or ()) + bool(node.get("state_wrong")) for node in document["nodes"]
    )


def exposed(document: Mapping[str, Any]) -> list[str]:
    """The nodes without protection."""
    return [
        f"{node['group']}/{node['node']}"
        for node in document["nodes"]
        if isinstance(node.get("security"), dict) and node["security"].get("exposed")
    ]


async def overview(visit: Visit) -> Page:
    document = await visit.view.document()
    healths = [health_of(each) for each in document["broker_groups"]]
    nodes = node_rows(document)
    topics = [each for each in document["topics"] if not each["system"]]
    dead = sum(each["messages"] for each in document["topics"] if each["name"].startswith("%DLQ%"))
    return Page(
        "overview.html",
        "Overview",
        "",
        {
            "healths": healths,
            "overall": overall(healths),
            "sound": sum(each.may_lose > 0 for each in healths),
            "nodes": nodes,
            "nodes_up": sum(node["role"] != "down" for node in nodes),
            "lag": sum(row["lag"] or 0 for row in document["groups"]),
            "messages": sum(each["messages"] for each in topics),
            "dead": dead,
            "findings": findings(document),
            "exposed": exposed(document),
        },
    )
