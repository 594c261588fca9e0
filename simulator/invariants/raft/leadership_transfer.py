"""A leader transfers only to a node with its whole log, and adds nothing meanwhile (thesis 3.10).

The target would drop an added entry, or could not be elected because of it (bug A11). The leader
goes on an election timeout after the transfer began. Nobody saw when that was, but it was not
before the last entry that it added, because it has taken none since. A leader that is no voter any
more waits for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.raft.messages import AppendAccepted, HeartbeatResponse, TimeoutNow
from dledger.raft.raft_state import Role
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from simulator.invariants.raft.configurations_seen import SeenConfigurations

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class _Ordered(NamedTuple):
    target: str
    last_index: int
    ends_at: float
    """Its own time, and not later."""


class LeadershipTransferInOrder(Invariant):
    """Follows the end of each leader's log, what is confirmed to it, and its orders."""

    step_parts = ChangedPart.LOG | ChangedPart.RAFT_STATE
    sent_kinds = (TimeoutNow, AppendAccepted, HeartbeatResponse)

    def __init__(self, seen: SeenConfigurations) -> None:
        self._seen = seen
        self._added: dict[tuple[str, int, int], tuple[int, float]] = {}  # last index, own time
        self._ordered: dict[tuple[str, int, int], _Ordered] = {}  # by name, boot, term
        self._confirmed: dict[tuple[str, int, str], int] = {}  # by leader, term, follower

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, AppendAccepted | HeartbeatResponse):
            told = (peer, message.term, host.name)
            self._confirmed[told] = max(message.match_index, self._confirmed.get(told, -1))
        elif isinstance(message, TimeoutNow) and host.node is not None:
            self._orders(host, peer, message)

    def _orders(self, host: Host, peer: str, message: TimeoutNow) -> None:
        assert host.node is not None  # noqa: S101 - it has just spoken
        leadership = (host.name, host.boot, message.term)
        last_index, added_at = self._added.get(leadership, (-1, host.own_time))
        confirmed = self._confirmed.get((host.name, message.term, peer), -1)
        if confirmed < last_index and host.name in self._seen.of(host)[1].voters:
            raise Violation(
                f"leader {host.name} of term {message.term} orders {peer} to campaign, which has "
                f"confirmed entries to {confirmed} of {last_index}"
            )
        ends_at = added_at + host.node.core.config.election_seconds
        self._ordered[leadership] = _Ordered(peer, last_index, ends_at)

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER:
            return
        leadership, last_index = (host.name, host.boot, core.term), core.entry_cache.last_index
        if last_index == self._added.get(leadership, (-1, 0.0))[0]:
            return
        self._added[leadership] = (last_index, host.own_time)
        ordered = self._ordered.get(leadership)
        if ordered is not None and host.own_time < ordered.ends_at:
            raise Violation(
                f"leader {host.name} of term {core.term} adds entry {last_index}, "
                f"and has ordered {ordered.target} to campaign with the log to {ordered.last_index}"
            )
