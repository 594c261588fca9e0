"""The state of a cluster: the role and the log of each node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from broker.admin.group_health import LEADER, GroupHealth, MemberReport, group_health, leader_of
from broker.cluster_admin.admin_client import AdminClient, document_of
from broker.cluster_admin.broker_names import BrokerName, DepartedBroker
from broker.command_error import CommandError
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.java_json import decode_json

DOWN = "down"
VOTER = "voter"
VIEW_SECONDS = 3.0
"""The timeout of the status. Brokers answer it from memory, so one without an answer is shown as
down."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. Fields that only the node itself knows are None if it does not answer."""

    node: str
    pid: int | None
    address: str | None
    http: str | None
    role: str
    term: int | None
    last_index: int | None
    commit_index: int | None
    applied_index: int | None
    lag_entries: int | None
    serving: bool = False
    disk: str | None = None
    refilling: str | None = None
    damage: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    member: str | None = None
    """voter, learner, refilling (a voter that lost its disk), or none."""
    incarnation: str | None = None
    security: dict[str, str | bool] = field(default_factory=dict)
    """See :func:`broker.admin.node_status.security_settings`."""
    grpc: str | None = None
    version: str | None = None
    """The version of its program; also None for 0.1.0, which does not send it."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One broker group; ``leader`` is a node's name, ``group/node``."""

    group: str
    leader: str | None
    term: int | None
    nodes: list[NodeView]
    joint: bool = False
    """Whether a change of the voters is in progress."""
    unregistered_seconds: float | None = None
    """How long no node of it has been registered, in seconds; None if one is registered."""
    health: GroupHealth | None = None
    """The health of the group by the nodes that answered; None if it was not computed."""

    @property
    def serves(self) -> bool:
        """Whether there is a leader that serves."""
        return any(node.role == LEADER and node.serving for node in self.nodes)

    @property
    def leader_node(self) -> NodeView | None:
        return next((node for node in self.nodes if node.node == self.leader), None)

    @property
    def healthy(self) -> bool:
        """Whether there is a leader that serves, and a majority that follows it."""
        return self.health is not None and self.health.healthy

    def to_json(self) -> dict[str, Any]:
        """The document of ``dledger status --json``. ``gone_seconds`` and ``mended`` are earlier
        names of ``unregistered_seconds`` and ``repaired``."""
        document = asdict(self)
        for node in document["nodes"]:
            node["mended"] = node["repaired"]
        return document | {
            "gone_seconds": self.unregistered_seconds,
            "health": None if self.health is None else self.health.to_json(),
        }


async def view_groups(admin: AdminClient) -> list[GroupView]:
    """Every registered group, with its nodes asked at the same time, and the groups without a
    registered node.
    """
    names = await admin.broker_names()
    registered = {name.name for name in names}
    gone = [each for each in await admin.departed_brokers() if each.name not in registered]
    views = [_view_group(admin, name) for name in names] + [
        _view_gone(admin, each) for each in gone
    ]
    return sorted(await asyncio.gather(*views), key=lambda view: view.group)


async def view_node(admin: AdminClient, address: str) -> dict[str, str]:
    """The runtime info of one broker (GET_BROKER_RUNTIME_INFO); raises :class:`CommandError`."""
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    table = document_of(await admin.ask(address, code, seconds=VIEW_SECONDS)).get("table")
    if not isinstance(table, dict) or "raftNode" not in table:
        raise CommandError(f"{address} reports no Raft group; is it a dledger broker?")
    return table


async def _view_group(admin: AdminClient, name: BrokerName) -> GroupView:
    asked = dict.fromkeys(name.addresses.values())
    told = await _tell(admin, name.name, asked)
    # The other members know a member without a registration, and it may still answer.
    others = [member["address"] for member in _members(told).values()]
    unasked = [address for address in others if address and address not in asked]
    told |= await _tell(admin, name.name, unasked)
    view = assemble_group(name.name, told)
    if view.nodes:
        return view
    members = {address: broker_id for broker_id, address in name.addresses.items()}
    return replace(view, nodes=_down_nodes(name.name, members))


async def _view_gone(admin: AdminClient, gone: DepartedBroker) -> GroupView:
    """A group without registered nodes. Its nodes may still run; those that do not answer are
    down."""
    view = assemble_group(gone.name, await _tell(admin, gone.name, gone.members))
    return replace(
        view,
        nodes=view.nodes or _down_nodes(gone.name, gone.members),
        unregistered_seconds=gone.seconds,
    )


def _down_nodes(group: str, members: Mapping[str, int]) -> list[NodeView]:
    """The members of a group of which none answers, by address, with their broker ids."""
    down = [
        _node_view(f"{group}/{_node_of(broker_id)}", {"address": address}, None, None)
        for address, broker_id in members.items()
    ]
    return sorted(down, key=lambda node: node.node)


def _node_of(broker_id: int) -> str:
    """The node that registers with that id while it follows."""
    return f"n{broker_id - 1}" if broker_id > 0 else "?"


async def _tell(
    admin: AdminClient, group: str, addresses: Iterable[str]
) -> dict[str, dict[str, str]]:
    """The answers of the group's members. Other brokers may listen at the address of a former
    member."""
    answers = await asyncio.gather(
        *(view_node(admin, address) for address in addresses), return_exceptions=True
    )
    told = {}
    for answer in answers:
        if isinstance(answer, dict):
            if answer["raftGroup"] == group:
                told[answer["raftNode"]] = answer
        elif not isinstance(answer, CommandError):
            raise answer
    return told


def _members(told: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    members: dict[str, dict[str, str]] = {}
    for node in sorted(told):
        members.update(decode_json(told[node]["raftMembers"].encode()))
    return members


def assemble_group(group: str, told: Mapping[str, Mapping[str, str]]) -> GroupView:
    """One group, from the reports of its members by node id. Members without a report are down."""
    reports = [_report(node, table) for node, table in sorted(told.items())]
    leading = leader_of(reports)
    leader = None if leading is None else leading.node
    last_index = None if leading is None else leading.last_index
    # The leader knows the members. Without a leader, all members that answer are shown.
    members = _members(told if leader is None else {leader: told[leader]})
    known = told if leader is None else (leader,)  # the leader may be about to be removed
    members |= {node: {} for node in known if node not in members}
    return GroupView(
        group=group,
        leader=None if leader is None else f"{group}/{leader}",
        term=max((int(table["raftTerm"]) for table in told.values()), default=None),
        nodes=[
            _node_view(f"{group}/{node}", members[node], told.get(node), last_index)
            for node in sorted(members)
        ],
        joint=leader is not None and told[leader].get("raftJoint") == "true",
        health=group_health(group, reports),
    )


def _report(node: str, table: Mapping[str, str]) -> MemberReport:
    # A broker of an earlier version gives only the names of its members.
    voters = decode_json((table.get("raftVoters") or table["raftMembers"]).encode())
    old_voters = decode_json(table.get("raftOldVoters", "[]").encode())
    return MemberReport(
        node=node,
        role=table["raftRole"],
        term=int(table["raftTerm"]),
        leader=table.get("raftLeader", ""),
        serving=table.get("raftServing") == "true",
        counts=table.get("raftMember") == VOTER,
        last_index=int(table["raftLastIndex"]),
        voters=tuple(voters),
        old_voters=tuple(old_voters),
    )


def _node_view(
    name: str, member: Mapping[str, str], table: Mapping[str, str] | None, last_index: int | None
) -> NodeView:
    address, http = member.get("address"), member.get("http")
    if table is None:
        return NodeView(name, None, address, http, DOWN, None, None, None, None, None)
    own_last = int(table["raftLastIndex"])
    # The node's own answer counts: other members may know an earlier address.
    own = decode_json(table.get("raftOwnMember", "{}").encode())
    return NodeView(
        node=name,
        pid=int(table["pid"]),
        address=own.get("client") or address,
        http=table.get("httpAddress") or http,
        role=table["raftRole"],
        term=int(table["raftTerm"]),
        last_index=own_last,
        commit_index=int(table["raftCommitIndex"]),
        applied_index=int(table["raftAppliedIndex"]),
        lag_entries=None if last_index is None else max(0, last_index - own_last),
        serving=table.get("raftServing") == "true",
        disk=table.get("diskLevel"),
        refilling=table.get("refilling") or None,
        damage=decode_json(table.get("damage", "[]").encode()),
        # Earlier programs call it mended.
        repaired=decode_json((table.get("repaired") or table.get("mended", "[]")).encode()),
        member=table.get("raftMember"),
        incarnation=table.get("raftIncarnation"),
        security=decode_json(table.get("security", "{}").encode()),
        grpc=table.get("grpcAddress") or None,
        version=table.get("programVersion"),
    )
