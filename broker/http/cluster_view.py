"""Every broker group of the cluster: one node asks all others over HTTP.

A NameServer gives the groups and nodes; each node gives the members of its group. If no NameServer
answers, only the node's own group is shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import UnionType
from typing import Any, TypeAlias, TypeGuard

from broker.admin.group_health import GroupHealth, MemberReport, group_health
from broker.admin.membership import VOTER
from broker.context import BrokerContext
from broker.http.json_documents import groups_document, status_document, topics_document
from broker.limits import ADMIN, AdminLimits
from dledger.wire.endpoint import Endpoint, EndpointError

log = logging.getLogger(__name__)

Document: TypeAlias = dict[str, Any]

Ask: TypeAlias = Callable[[str, str], Awaitable[Document]]
"""``GET http://<address><path>``. Raises ``OSError`` if no JSON object comes back."""

Names: TypeAlias = Callable[[], Awaitable[Document]]
"""A NameServer's cluster info (106); empty if none answers."""

DOWN = "down"


class ClusterView:
    """Asks for each document anew; nothing is cached."""

    def __init__(
        self, context: BrokerContext, names: Names, ask: Ask, limits: AdminLimits = ADMIN
    ) -> None:
        self._context = context
        self._names = names
        self._ask = ask
        self._limits = limits

    async def nodes(self) -> Document:
        """``{"broker_groups": [...], "nodes": [...]}``: the health of each group, and the status of
        each node, or why it gave none."""
        own = status_document(self._context)
        names = await self._names()
        found = {(own["group"], own["node"]): own | {"http": str(self._context.config.own.http)}}
        asked = {str(self._context.config.own.http)}
        await self._ask_all([*_registered(names), *_addresses(found.values())], asked, found)
        await self._ask_all(_addresses(found.values()), asked, found)
        groups = sorted({group for group, _ in found} | _named(names))
        healths = [_health(name, found) for name in groups]
        down = _missing(found)
        return {
            "broker_groups": [health.to_json() for health in healths],
            "nodes": sorted(
                [*found.values(), *down], key=lambda node: (node["group"], node["node"])
            ),
        }

    async def document(self) -> Document:
        """As :meth:`nodes`, with the topics and consumer groups of each broker group by its leader,
        each with its ``broker_group``."""
        view = await self.nodes()
        parts = await asyncio.gather(
            *(
                self._contents(health["group"], health["leader"], view["nodes"])
                for health in view["broker_groups"]
            )
        )
        topics = [topic for topics, _ in parts for topic in topics]
        groups = [group for _, groups in parts for group in groups]
        return view | {"topics": topics, "groups": _with_unknown(groups, topics)}

    async def of_nodes(self, path: str, nodes: Iterable[Document]) -> list[Document]:
        """The answers of the nodes to ``GET path``, each with its ``from``; nodes without an answer
        are left out."""
        up = [node for node in nodes if node["role"] != DOWN and node.get("http")]
        answers = await asyncio.gather(*(self._get(node["http"], path) for node in up))
        return [
            answer | {"from": f"{node['group']}/{node['node']}"}
            for node, answer in zip(up, answers, strict=True)
            if answer is not None and "error" not in answer
        ]

    async def _contents(
        self, group: str, leader: str | None, nodes: list[Document]
    ) -> tuple[list[Document], list[Document]]:
        """The topics and groups by the leader; without a leader, by any node that answers."""
        up = [node for node in nodes if node["group"] == group and node["role"] != DOWN]
        up.sort(key=lambda node: node["node"] != leader)
        if not up:
            return [], []
        config = self._context.config
        if (group, up[0]["node"]) == (config.group, config.node):
            topics = await topics_document(self._context)
            groups = await groups_document(self._context)
        else:
            address = up[0]["http"]
            answers = await asyncio.gather(
                self._get(address, "/topics"), self._get(address, "/groups")
            )
            topics, groups = (answer or {} for answer in answers)
        return (
            _rows(group, topics.get("topics"), {"name": str, "messages": int}),
            _rows(
                group, groups.get("groups"), {"group": str, "topic": str | None, "lag": int | None}
            ),
        )

    async def _ask_all(
        self, addresses: Iterable[str], asked: set[str], found: dict[tuple[str, str], Document]
    ) -> None:
        room = self._limits.nodes_asked_max - len(asked)
        wanted = [each for each in dict.fromkeys(addresses) if each not in asked][:room]
        asked.update(wanted)
        answers = await asyncio.gather(*(self._get(address, "/status") for address in wanted))
        for address, answer in zip(wanted, answers, strict=True):
            if answer is not None and _report(answer) is not None:
                found[answer["group"], answer["node"]] = answer | {"http": address}

    async def _get(self, address: str, path: str) -> Document | None:
        try:
            return await self._ask(address, path)
        except OSError as error:
            log.debug("no answer from http://%s%s: %s", address, path, error)
            return None


def _registered(names: Document) -> list[str]:
    """The HTTP addresses that brokers registered."""
    return [each for each in _table(names, "httpAddrTable").values() if _is_address(each)]


def _named(names: Document) -> set[str]:
    """The broker groups that a NameServer knows, with those that are gone."""
    return {*_table(names, "brokerAddrTable"), *_table(names, "goneTable")}


def _table(names: Document, name: str) -> dict[str, object]:
    found = names.get(name)
    return found if isinstance(found, dict) else {}


def _is_address(text: object) -> TypeGuard[str]:
    """Whether a text from another node is an address to which a request may go."""
    try:
        Endpoint.parse(text if isinstance(text, str) else "")
    except EndpointError:
        return False
    return True


def _members(status: Mapping[str, Any]) -> dict[str, str]:
    """The HTTP addresses in one node's status, by node."""
    return {
        str(node): at["http"]
        for node, at in status["members"].items()
        if isinstance(at, dict) and isinstance(at.get("http"), str)
    }


def _addresses(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [each for node in nodes for each in _members(node).values() if _is_address(each)]


def _missing(found: Mapping[tuple[str, str], Document]) -> list[Document]:
    """The members that do not answer, by the status of those that do."""
    missing = {
        (group, node): at
        for (group, _), status in found.items()
        for node, at in _members(status).items()
        if (group, node) not in found
    }
    return [
        {
            "group": group,
            "node": node,
            "role": DOWN,
            "http": at if _is_address(at) else "",
            "error": f"no answer at {at or 'any address'}",
        }
        for (group, node), at in missing.items()
    ]


def _health(group: str, found: Mapping[tuple[str, str], Document]) -> GroupHealth:
    reports = [_report(status) for (of, _), status in sorted(found.items()) if of == group]
    return group_health(group, [report for report in reports if report is not None])


def _report(status: Document) -> MemberReport | None:
    """The part of a status that the health of a group depends on; None if it is not a status."""
    members = status.get("members")
    # A broker of an earlier version gives only the names of its members.
    voters, old_voters = status.get("voters") or members, status.get("old_voters") or ()
    if not isinstance(members, dict) or not isinstance(status.get("group"), str):
        return None
    if not isinstance(voters, list | tuple | dict) or not isinstance(old_voters, list | tuple):
        return None
    report = MemberReport(
        node=status.get("node", ""),
        role=status.get("role", ""),
        term=status.get("term", 0),
        leader=status.get("leader") or "",
        serving=status.get("serving") is True,
        counts=status.get("member", VOTER) == VOTER,
        last_index=status.get("last_index", 0),
        voters=tuple(voters),
        old_voters=tuple(old_voters),
    )
    texts = (report.node, report.role, report.leader, *report.voters, *report.old_voters)
    numbers = (report.term, report.last_index)
    if all(type(each) is str for each in texts) and all(type(each) is int for each in numbers):
        return report
    return None


def _with_unknown(groups: list[Document], topics: list[Document]) -> list[Document]:
    """Adds rows for broker groups on which a consumer group has not consumed its topic yet: all
    messages of the topic there are its lag. Such a row replaces the row without a topic."""
    known = {(row["group"], row["topic"], row["broker_group"]) for row in groups}
    by_topic: dict[str, set[str]] = {}
    for row in groups:
        if row["lag"] is not None:
            by_topic.setdefault(row["topic"], set()).add(row["group"])
    added = [
        {
            "group": group,
            "topic": topic["name"],
            "members": 0,
            "acknowledged": 0,
            "lag": topic["messages"],
            "broker_group": topic["broker_group"],
        }
        for topic in topics
        if topic["messages"]
        for group in by_topic.get(topic["name"], ())
        if (group, topic["name"], topic["broker_group"]) not in known
    ]
    consuming = {(row["group"], row["broker_group"]) for row in added}
    kept = [
        row
        for row in groups
        if row["topic"] is not None or (row["group"], row["broker_group"]) not in consuming
    ]
    return sorted(
        [*kept, *added],
        key=lambda row: (row["group"], row["topic"] or "", row["broker_group"]),
    )


def _rows(group: str, rows: object, fields: Mapping[str, type | UnionType]) -> list[Document]:
    """The rows of an answer whose ``fields`` have these types."""
    return [
        row | {"broker_group": group}
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
        and all(isinstance(row.get(name), kind) for name, kind in fields.items())
    ]
