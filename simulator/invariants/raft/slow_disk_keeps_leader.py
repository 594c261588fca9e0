"""A slow disk is no reason to depose a leader: heartbeats do not wait for it.

The check runs as long as nothing else has happened to a cluster. A leader may give up by itself, to
make room for one with a better disk; then it orders the election itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import TimeoutNow
from dledger.raft.raft_state import Role
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant

if TYPE_CHECKING:
    from simulator.faults.schedule import Action
    from simulator.hosts.host import Host

SETTLED_TIMEOUTS = 4
"""A leadership is settled after this number of election timeouts."""


class SlowDiskKeepsLeader(Invariant):
    """Remembers the present leader and since when it leads."""

    sent_kinds = (TimeoutNow,)

    def __init__(self) -> None:
        self._quiet = True
        self._leader: tuple[str, int, float] | None = None  # name, term, since

    def acted(self, action: Action) -> None:
        """See :class:`Invariant`."""
        self._quiet = self._quiet and action.name == "slow-disk"

    def sends(self, host: Host, _peer: str, message: Message) -> None:
        """See :class:`Invariant`. The next leader is elected by order."""
        known = self._leader and self._leader[:2]
        if isinstance(message, TimeoutNow) and known == (host.name, message.term):
            self._leader = None

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if self._quiet and host.node is not None else None
        if core is None:
            return
        if core.role is not Role.LEADER:
            if self._leader is not None and (host.name, core.term) == self._leader[:2]:
                self._leader = None
            return
        if self._leader is None:
            self._leader = (host.name, core.term, host.now)
            return
        name, term, since = self._leader
        if term == core.term:
            return
        if host.now - since > SETTLED_TIMEOUTS * core.config.election_seconds:
            raise Violation(
                f"{host.name} leads term {core.term} instead of {name}, which led since {since:.3f}"
                ", though only disks were slow"
            )
        self._leader = (host.name, core.term, host.now)
