"""The pages of members, of waiting messages, and of findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.admin.audit_report import AuditReport
from broker.console.pages.overview import health_of, node_rows
from broker.console.visits.visit import Page, Visit
from broker.http.cluster_view import DOWN


async def members(visit: Visit) -> Page:
    document = await visit.view.nodes()
    rows = node_rows(document)
    voters = {each["group"]: _voters(document, each["group"]) for each in document["broker_groups"]}
    return Page(
        "members.html",
        "Members",
        "members",
        {
            "groups": [
                {
                    "health": health_of(each),
                    "nodes": [row for row in rows if row["group"] == each["group"]],
                    "voters": voters[each["group"]],
                }
                for each in document["broker_groups"]
            ]
        },
    )


def _voters(document: Mapping[str, Any], group: str) -> list[str]:
    """The voters by the leader, or by a node that answers."""
    nodes = [each for each in document["nodes"] if each["group"] == group and "voters" in each]
    nodes.sort(key=lambda each: each["role"] != "leader")
    return list(nodes[0]["voters"]) if nodes else []


async def waiting(visit: Visit) -> Page:
    """The page of waiting messages of each broker group, by its leader."""
    document = await visit.view.nodes()
    leaders = {(each["group"], each["leader"]) for each in document["broker_groups"]}
    asked = [node for node in document["nodes"] if (node["group"], node["node"]) in leaders]
    told = await visit.view.of_nodes("/waiting", asked)
    groups = [_waiting(each) for each in told]
    return Page(
        "waiting.html",
        "Waiting messages",
        "waiting",
        {
            "groups": groups,
            "silent": sorted(
                each["group"]
                for each in document["broker_groups"]
                if each["group"] not in {group["name"] for group in groups}
            ),
        },
    )


def _waiting(told: Mapping[str, Any]) -> dict[str, Any]:
    levels = told["delayed"]["levels"]
    return {
        "name": told["from"].partition("/")[0],
        "now_ms": told["now_ms"],
        "transactions": told["transactions"],
        "levels": levels,
        "timed": told["delayed"]["timed"],
        "timed_next_ms": told["delayed"].get("timed_next_ms"),  # not of a node of 0.1.0
        "delayed": sum(each["messages"] for each in levels) + told["delayed"]["timed"],
        "popped": told["popped"],
    }


async def findings(visit: Visit) -> Page:
    """The page of findings: of each node about its own data, and of audits."""
    document = await visit.view.nodes()
    told = await visit.view.of_nodes("/audit", document["nodes"])
    nodes = [
        {
            "name": f"{node['group']}/{node['node']}",
            "id": f"{node['group']}-{node['node']}",
            "answers": node["role"] != DOWN and "damage" in node,
            "progress": round(100 * (node.get("scrub_progress") or 0)),
            "passes": node.get("scrub_passes") or 0,
            "damage": node.get("damage") or [],
            "repaired": node.get("repaired", node.get("mended")) or [],  # of earlier programs
            "state_wrong": node.get("state_wrong"),
            "refilling": node.get("refilling"),
            "disk": node.get("disk"),
            "refused": node.get("access_refused") or 0,
        }
        for node in document["nodes"]
    ]
    return Page(
        "findings.html",
        "Findings",
        "findings",
        {
            "nodes": nodes,
            "damage": sum(len(node["damage"]) + bool(node["state_wrong"]) for node in nodes),
            "repaired": sum(len(node["repaired"]) for node in nodes),
            "unread": [node["name"] for node in nodes if node["answers"] and not node["passes"]],
            "audits": newest_audits(told),
            "audit_dirs": sorted({each["directory"] for each in told if each.get("directory")}),
        },
    )


def newest_audits(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The newest audit report for each set of broker groups, newest first. Nodes with a common
    directory have the same reports."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    reports = [
        {**report, "from": each["from"]}
        for each in told
        for report in each.get("reports") or ()
        if isinstance(report, dict) and report.keys() == {*AuditReport._fields}
    ]
    for report in sorted(reports, key=lambda each: (-each["time_ms"], each["from"])):
        groups = {name.partition("/")[0] for name in report["replicas"]}
        found.setdefault(tuple(sorted(groups)), report)
    return [
        {**report, "groups": groups, "unlisted": report["findings"] - len(report["listed"])}
        for groups, report in found.items()
    ]
