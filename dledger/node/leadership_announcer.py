"""Tells the state machine, and the log, who leads."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.node.state_machine import Leadership, StateMachine
from dledger.raft.raft_state import Role
from dledger.raft.view import RaftView

log = logging.getLogger(__name__)


class LeadershipAnnouncer:
    """Knows what it told last."""

    def __init__(
        self,
        *,
        core: RaftView,
        machine: StateMachine,
        applied_index: Callable[[], int],
        state_wrong: Callable[[], str],
        leadership_ended: Callable[[], None],
    ) -> None:
        """``leadership_ended`` is called before the state machine hears that this node leads no
        more."""
        self._core = core
        self._machine = machine
        self._applied_index = applied_index
        self._state_wrong = state_wrong
        self._leadership_ended = leadership_ended
        self._raft_state = core.raft_state
        self.leadership = Leadership(Role.FOLLOWER, core.term, None, False)
        """As last announced."""
        self.leader_changes = 0
        """How often this node has learned of another leader, or of itself in a new term."""
        self._led_by: tuple[str, int] | None = None
        self._logged: tuple[Role | None, str | None] = (Role.FOLLOWER, "")

    def announce(self) -> None:
        """Announces who leads, if that has changed. The proposals of a leadership that ended are
        dropped first."""
        before, raft_state = self.leadership, self._raft_state
        leads = raft_state.role is Role.LEADER
        applied = self._applied_index() >= self._core.term_first_index
        serving = leads and applied and not self._state_wrong()
        now = Leadership(raft_state.role, raft_state.term, raft_state.leader, serving)
        if now == before:
            return
        self.leadership = now
        if now.leader is not None and self._led_by != (now.leader, now.term):
            self._led_by = now.leader, now.term
            self.leader_changes += 1
        if before.role is Role.LEADER and (now.role is not Role.LEADER or now.term != before.term):
            self._leadership_ended()
        # A node that cannot be elected starts one pre-vote after the other: this is logged once.
        seeks = now.leader is None and now.role is not Role.CANDIDATE
        told = (None if seeks else now.role, now.leader)
        if told != self._logged:
            self._logged = told
            campaigns = now.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
            log.log(
                logging.DEBUG if campaigns else logging.INFO,
                "%(node)s is %(role)s in term %(term)d, leader %(leader)s",
                {
                    "node": self._core.node,
                    "role": now.role.value,
                    "term": now.term,
                    "leader": now.leader,
                },
            )
        self._machine.leadership_changed(now)
