"""The members of the group and their addresses, from the log and the settings.

The log has the members. The addresses of members that were added online are in the log; those of
the first members are in this node's settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from dledger.node.node import Node
from dledger.raft.configuration import Configuration, MemberAddress
from dledger.wire.endpoint import Endpoint

NOWHERE = MemberAddress("", "", "")

VOTER, LEARNER, REFILLING, NON_MEMBER = "voter", "learner", "refilling", "none"


def member_addresses(
    config: NodeConfig, configuration: Configuration
) -> Mapping[str, MemberAddress]:
    """Every member by name, in order. Addresses that this node does not know are empty.

    The node's own addresses come from its settings, because those in the log may be outdated.
    """
    added = {**configuration.addresses, config.node: own_address(config)}
    return {
        name: added.get(name) or _configured(config, name)
        for name in configuration.members or sorted(config.members)
    }


def _configured(config: NodeConfig, name: str) -> MemberAddress:
    member = config.members.get(name)
    if member is None:
        return NOWHERE
    return MemberAddress(str(member.peer), str(member.address), str(member.http))


def client_addresses(config: NodeConfig, configuration: Configuration) -> tuple[str, ...]:
    """The client addresses of the members; empty unless this node knows all of them."""
    found = tuple(each.client for each in member_addresses(config, configuration).values())
    return found if all(found) else ()


def peer_addresses(config: NodeConfig, configuration: Configuration) -> tuple[str, ...]:
    """The client addresses of the other members that this node knows."""
    members = member_addresses(config, configuration)
    return tuple(at.client for name, at in members.items() if name != config.node and at.client)


def leader_address(config: NodeConfig, node: Node) -> str | None:
    """The leader's remoting address; None while the leader or its address is unknown."""
    leader = node.leadership.leader
    if leader is None:
        return None
    members = member_addresses(config, node.core.configuration)
    return members[leader].client or None if leader in members else None


def own_address(config: NodeConfig) -> MemberAddress:
    """The addresses of this node."""
    return _configured(config, config.node)


def grpc_address(config: NodeConfig) -> str:
    """The gRPC address of this node; empty without gRPC."""
    return "" if config.own.grpc is None else str(config.own.grpc)


def membership_status(context: BrokerContext) -> str:
    """The role of this node in its group.

    ``voter``, ``learner``, ``none`` (not added yet, or removed), or ``refilling``: a voter whose
    disk lacks entries that it confirmed. It does not count for majorities until it has them again.
    """
    core = context.node.core
    if core.raft_state.removed:
        return NON_MEMBER
    found, node = core.configuration, core.node
    if found.votes(node):
        return VOTER if core.counts else REFILLING
    return LEARNER if node in found.learners else NON_MEMBER


def members_json(context: BrokerContext) -> dict[str, object]:
    """Voters and learners with their addresses, for operators and tools."""
    core = context.node.core
    found = core.configuration
    addresses = member_addresses(context.config, found)
    return {
        "group": context.config.group,
        "node": core.node,
        "leader": core.leader,
        "term": core.term,
        "voters": list(found.voters),
        "old_voters": list(found.old_voters),
        "learners": list(found.learners),
        "index": core.configurations.index,
        "committed": core.configurations.index <= core.commit_index,
        "members": {
            name: {
                "peer": at.peer,
                "address": at.client,
                "http": at.http,
                "incarnation": _hexadecimal(found.incarnations.get(name, 0)),
                "lag_entries": _lag(context, name),
            }
            for name, at in addresses.items()
        },
    }


def _hexadecimal(incarnation: int) -> str:
    return f"{incarnation:016x}" if incarnation else ""


def _lag(context: BrokerContext, name: str) -> int | None:
    """The number of committed entries that the member lacks; None if this node does not know."""
    core = context.node.core
    if not core.leads:
        return None
    if name == core.node:
        return 0
    progress = core.progress.get(name)
    return None if progress is None else max(0, core.commit_index - progress.match_index)


def parse_member(peer: str, client: str, http: str) -> MemberAddress:
    """Raises :class:`~dledger.wire.endpoint.EndpointError` for text that is not ``host:port``."""
    return MemberAddress(*(str(Endpoint.parse(text)) for text in (peer, client, http)))
