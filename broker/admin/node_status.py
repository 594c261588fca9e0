"""The status of a node and of its group, for ``/status``, runtime info and the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.admin.group_health import MemberReport
from broker.admin.membership import (
    VOTER,
    grpc_address,
    member_addresses,
    membership_status,
    own_address,
)
from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from dledger.raft.configuration import MemberAddress
from dledger.raft.raft_state import Role

_ROLES = {
    Role.LEADER: "leader",
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "candidate",
    Role.CANDIDATE: "candidate",
}


ROLES = (*dict.fromkeys(_ROLES.values()), "learner")
"""The values of :func:`role_name`."""


def role_name(context: BrokerContext) -> str:
    """leader, follower, candidate or learner.

    A node that asks for pre-votes is shown as a candidate, and a voter that does not count as a
    learner.
    """
    core = context.node.core
    return _ROLES[core.role] if core.counts else "learner"


def security_settings(config: NodeConfig) -> dict[str, str | bool]:
    """The modes of ``[security]``, and whether other machines reach the unprotected node."""
    security = config.security
    return {
        "peers": security.peers,
        "tls": security.tls,
        "access_control": security.access_control,
        "exposed": config.exposed,
    }


class NodeStatus(NamedTuple):
    """The status of one node at one moment."""

    group: str
    node: str
    cluster: str
    role: str
    term: int
    leader: str | None
    serving: bool
    last_index: int
    commit_index: int
    applied_index: int
    member: str
    """voter, learner, refilling (a voter that lost its disk), or none."""
    incarnation: int
    voters: tuple[str, ...]
    old_voters: tuple[str, ...]
    """The old voters, while a change of the voters is in progress."""
    members: Mapping[str, MemberAddress]
    own: MemberAddress
    """This node's own addresses. Other nodes may know outdated ones."""
    grpc: str
    """The gRPC address; empty without gRPC."""

    @classmethod
    def of(cls, context: BrokerContext) -> NodeStatus:
        config, node, core = context.config, context.node, context.node.core
        return cls(
            group=config.group,
            node=config.node,
            cluster=config.cluster,
            role=role_name(context),
            term=core.term,
            leader=node.leadership.leader,
            serving=node.leadership.serving,
            last_index=core.entry_cache.last_index,
            commit_index=core.commit_index,
            applied_index=node.applied_index,
            member=membership_status(context),
            incarnation=core.incarnation,
            voters=tuple(core.configuration.voters),
            old_voters=tuple(core.configuration.old_voters),
            members=member_addresses(config, core.configuration),
            own=own_address(config),
            grpc=grpc_address(config),
        )

    @property
    def report(self) -> MemberReport:
        """The part of the status that the health of the group depends on."""
        return MemberReport(
            node=self.node,
            role=self.role,
            term=self.term,
            leader=self.leader or "",
            serving=self.serving,
            counts=self.member == VOTER,
            last_index=self.last_index,
            voters=self.voters,
            old_voters=self.old_voters,
        )
