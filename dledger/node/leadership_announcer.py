"""Tells the state machine, and the log, who leads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dledger.node.state_machine import Leadership, StateMachine
from dledger.raft.raft_state import Role

if TYPE_CHECKING:
    from dledger.node.node import Node

log = logging.getLogger(__name__)


class LeadershipAnnouncer:
    """Knows what it told last."""

    def __init__(self, *, node: Node, machine: StateMachine) -> None:
        self._node = node
        self._machine = machine
        self._raft_state = node.core.raft_state
        self.leadership = Leadership(Role.FOLLOWER, node.core.term, None, False)
        """As last announced."""
        self._logged: tuple[Role | None, str | None] = (Role.FOLLOWER, "")

    @property
    def outdated(self) -> bool:
        """Whether the core may know otherwise by now."""
        raft_state, known = self._raft_state, self.leadership
        return (
            raft_state.role is not known.role
            or raft_state.term != known.term
            or raft_state.leader != known.leader
            or (raft_state.leader_state is not None and not known.serving)
        )

    def announce(self) -> None:
        """Tells who leads, if that changed. The proposals of a leadership that ended are dropped
        first."""
        node, before, raft_state = self._node, self.leadership, self._raft_state
        leads = raft_state.role is Role.LEADER
        applied = node.applier.applied_index >= node.core.term_first_index
        serving = leads and applied and not node.state_divergence.wrong
        now = Leadership(raft_state.role, raft_state.term, raft_state.leader, serving)
        if now == before:
            return
        self.leadership = now
        if before.role is Role.LEADER and (now.role is not Role.LEADER or now.term != before.term):
            node.proposals.drop()
        # A node that cannot be elected asks whether it could be, again and again: said once.
        seeks = now.leader is None and now.role is not Role.CANDIDATE
        told = (None if seeks else now.role, now.leader)
        if told != self._logged:
            self._logged = told
            log.info(
                "%s is %s in term %d, leader %s",
                node.core.node,
                now.role.value,
                now.term,
                now.leader,
            )
        self._machine.leadership_changed(now)
