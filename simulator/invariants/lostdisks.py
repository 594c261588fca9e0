"""Nobody is elected by the vote of a disk that lacks what it held (docs/safety.md; bug C11).

A machine got an empty disk, or an old copy of its own. Until it holds again what was durable on the
one that is gone, a majority that needs it may be one that knows nothing of a committed entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.messages import Message, VoteResponse
from dledger.standing import Role
from simulator.invariants.base import Invariant, Part
from simulator.invariants.membership import is_majority
from simulator.violation import Violation

if TYPE_CHECKING:
    from simulator.host import Host


class LostDisksElectNobody(Invariant):
    """Remembers which machines lack something, and who has voted for whom."""

    step_parts = Part.DURABLE | Part.STANDING
    sent_kinds = (VoteResponse,)

    def __init__(self) -> None:
        self._lacking: dict[str, int] = {}  # name -> the index that it must hold again
        self._votes: dict[tuple[str, int], dict[str, bool]] = {}  # candidate, term -> sound voters
        self._looked: dict[int, None] = {}

    def disk_replaced(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self._lacking[host.name] = host.lost_index

    def sends(self, host: Host, peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, VoteResponse) and message.granted and not message.pre_vote:
            votes = self._votes.setdefault((peer, message.term), {})
            votes[host.name] = host.name not in self._lacking

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None:
            return
        if core.durable_index >= self._lacking.get(host.name, -1):
            self._lacking.pop(host.name, None)
        if core.role is not Role.LEADER or core.term in self._looked:
            return
        self._looked[core.term] = None  # votes that come later have elected nobody
        votes = self._votes.get((host.name, core.term), {})
        votes = {host.name: host.name not in self._lacking, **votes}
        unsound = [name for name, is_sound in votes.items() if not is_sound]
        sound = [name for name, is_sound in votes.items() if is_sound]
        if unsound and not is_majority(core.configuration, sound):
            raise Violation(
                f"{host.name} leads term {core.term} by the vote of {', '.join(unsound)}, "
                "whose disk lacks what it held"
            )
