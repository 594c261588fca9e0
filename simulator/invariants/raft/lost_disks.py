"""Nobody is elected by the vote of a disk that lacks what it held (docs/safety.md; bug C11).

A machine got an empty disk, or an old copy of its own. The lost disk had confirmed entries, or had
committed them as leader. Until the new one holds them again, a majority that needs it may know
nothing of a committed entry. Entries that a leader alone held are not missed: nobody can have
counted on them or have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.messages import AppendAccepted, HeartbeatResponse, VoteResponse
from dledger.raft.raft_state import Role
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from simulator.invariants.raft.configurations_seen import SeenConfigurations

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class LostDisksDoNotElect(Invariant):
    """Remembers which machines lack something, and their votes."""

    step_parts = ChangedPart.COMMIT | ChangedPart.DURABLE | ChangedPart.RAFT_STATE
    sent_kinds = (VoteResponse, AppendAccepted, HeartbeatResponse)

    def __init__(self, seen: SeenConfigurations) -> None:
        self._seen = seen
        self._confirmed: dict[str, int] = {}  # name -> the last index that it told anybody
        self._counted_on: dict[str, int] = {}  # name -> the last index that it holds of those
        self._lacking: dict[str, int] = {}  # name -> the index that it must hold again
        self._votes: dict[tuple[str, int], dict[str, bool]] = {}  # candidate, term -> sound voters
        self._looked: dict[int, None] = {}

    def disk_replaced(self, host: Host) -> None:
        """See :class:`Invariant`."""
        counted_on = self._counted_on.get(host.name, -1)
        self._lacking[host.name] = max(self._lacking.get(host.name, -1), counted_on)

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, AppendAccepted | HeartbeatResponse):
            if message.match_index > self._confirmed.get(host.name, -1):
                self._confirmed[host.name] = message.match_index
        elif isinstance(message, VoteResponse) and message.granted and not message.pre_vote:
            votes = self._votes.setdefault((peer, message.term), {})
            votes[host.name] = host.name not in self._lacking

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None:
            return
        local, name = core.raft_log, host.name
        told = max(self._confirmed.get(name, -1), local.commit_index)
        self._counted_on[name] = min(local.durable_index, told)
        if local.durable_index >= self._lacking.get(name, -1):
            self._lacking.pop(name, None)
        if core.role is not Role.LEADER or core.term in self._looked:
            return
        self._looked[core.term] = None  # votes that come later have elected nobody
        votes = self._votes.get((host.name, core.term), {})
        votes = {host.name: host.name not in self._lacking, **votes}
        unsound = [name for name, is_sound in votes.items() if not is_sound]
        sound = [name for name, is_sound in votes.items() if is_sound]
        if unsound and not self._seen.of(host)[1].is_majority(sound):
            raise Violation(
                f"{host.name} leads term {core.term} by the vote of {', '.join(unsound)}, "
                "whose disk lacks what it held"
            )
