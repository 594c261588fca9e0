"""A leader without a majority, or with a stuck change of the voters, does not lead for long.

The sources are check-quorum (thesis 6.2) and ``docs/safety.md``. The check runs whenever the leader
sends heartbeats, by its own clock. A leader that sent none for an election timeout was paused, or
its disk was slow; then the time starts again. So it does when other nodes become the voters. A
leader that sent none for half an election timeout may ask before it steps down: the time starts
again if a majority has answered, or voted, since it did so last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from dledger.raft.messages import AppendAccepted, AppendRejected, Heartbeat, HeartbeatResponse
from dledger.raft.raft_state import Role
from dledger.raft.view import RaftView
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host

ANSWERED_ELECTIONS = 2.1
"""Election timeouts within which a majority must have answered: a leader checks once in each."""


class LeadershipTimeLimits(Invariant):
    """Remembers the last answers of a majority in each leadership, and since when its voters
    change."""

    sent_kinds = (Heartbeat,)
    received_kinds = (AppendAccepted, AppendRejected, HeartbeatResponse)

    def __init__(self) -> None:
        self._of: dict[str, _Leadership] = {}

    def receives(self, host: Host, sender: str, message: Message) -> None:
        """See :class:`Invariant`."""
        known = self._of.get(host.name)
        if (
            known is not None
            and isinstance(message, AppendAccepted | AppendRejected | HeartbeatResponse)
            and message.term == known.term
        ):
            known.answered[sender] = host.own_time

    def sends(self, host: Host, _peer: str, _message: Message) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER:
            return
        now, known = host.own_time, self._of.get(host.name)
        seconds = core.config.election_seconds
        if known is None or known.key != (host.boot, core.term) or now - known.beat_at > seconds:
            known = self._of[host.name] = _Leadership(host.boot, core.term, now)
        elif now - known.beat_at > seconds / 2 - core.config.heartbeat_seconds and (
            known.asked_at is None or _majority_answered(core, known, known.asked_at)
        ):
            known.since = known.asked_at = now
        known.beat_at = now
        self._answered(core, known, now)
        self._changed(core, known, now)

    def _answered(self, core: RaftView, known: _Leadership, now: float) -> None:
        if known.quorums != core.configuration.quorums:
            known.quorums, known.since = core.configuration.quorums, now
        since = now - ANSWERED_ELECTIONS * core.config.election_seconds
        if known.since > since:
            return
        if not _majority_answered(core, known, since):
            raise Violation(
                f"{core.node} leads term {core.term}, and no majority has answered it since "
                f"{since:.3f}"
            )

    def _changed(self, core: RaftView, known: _Leadership, now: float) -> None:
        found, index = core.configuration, core.configurations.index
        if not found.is_joint or core.commit_index < core.term_first_index:
            known.change = None  # a leader changes nothing before an entry of its own is committed
        elif known.change is None or known.change[0] != index:
            known.change = (index, now)
        else:
            seconds = now - known.change[1]
            if seconds > core.config.change_seconds + 2 * core.config.election_seconds:
                raise Violation(
                    f"{core.node} waits for {seconds:.1f} s for the change of the voters "
                    f"in entry {index}"
                )


class _Leadership:
    def __init__(self, boot: int, term: int, now: float) -> None:
        self.key = (boot, term)
        self.term = term
        self.since = self.beat_at = now
        self.asked_at: float | None = None
        """When the time started again because it may ask first. None: not yet, and its votes count
        as answers."""
        self.quorums: Sequence[Collection[str]] = ()
        self.answered: dict[str, float] = {}
        self.change: tuple[int, float] | None = None  # the joint configuration's index, since when


def _majority_answered(core: RaftView, known: _Leadership, since: float) -> bool:
    """Whether one of the quorums has answered since then."""
    heard = [name for name, at in known.answered.items() if at >= since]
    heard.append(core.node)
    return any(
        2 * sum(voter in heard for voter in voters) > len(voters)
        for voters in core.configuration.quorums
    )
