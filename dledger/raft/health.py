"""The health of this node and of its peers: told by its driver, and by the reports of the peers.

A node that should not lead is no less a member: it follows and votes. But it campaigns late, or not
at all, and nothing that needs it at once is begun with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

UNHEALTHY_DELAY_FACTOR = 4.0
"""How many times as long as others a node without room waits before it campaigns."""


class OwnHealth(NamedTuple):
    """How a node is, as its driver knows it."""

    holds_confirmed: bool = True
    """Whether it holds all that it may ever have confirmed; else it gives no vote."""
    prompt: bool = True
    """Whether its disk answers in time."""
    room: bool = True
    """Whether its disk has room for messages, and it is not about to stop."""
    intact: bool = True
    """Whether nothing of its log is damaged."""
    agrees: bool = True
    """Whether nothing that it holds contradicts the group."""


HEALTHY = OwnHealth()
"""Of a node that nothing is wrong with."""


class MemberHealth:
    """What one core knows of the health of all members."""

    def __init__(self, node: str, own: OwnHealth) -> None:
        self._node = node
        self._unhealthy: set[str] = set()
        self._damaged: set[str] = set()
        self.change_own(own)

    def change_own(self, own: OwnHealth) -> None:
        """This node is so from now on."""
        self.own = own
        self.election_delay_factor = 1.0 if own.room else UNHEALTHY_DELAY_FACTOR
        """How many times as long as usual this node waits before it campaigns."""
        _note(self._damaged, self._node, holds=not own.intact)

    def report(self, peer: str, *, healthy: bool, intact: bool) -> None:
        """A peer says whether it should lead, and whether all of its log can be read."""
        _note(self._unhealthy, peer, holds=not healthy)
        _note(self._damaged, peer, holds=not intact)

    def forget(self, peer: str) -> None:
        """Nothing is known of that peer any more."""
        self._unhealthy.discard(peer)
        self._damaged.discard(peer)

    def is_healthy(self, peer: str) -> bool:
        """Whether the peer would be a leader worth having, as far as it has told."""
        return peer not in self._unhealthy

    def is_intact(self, member: str) -> bool:
        """Whether nothing of the member's log is damaged, as far as it has told."""
        return member not in self._damaged

    def campaigns(self, other_voters: Iterable[str]) -> bool:
        """Whether this node asks for votes.

        One with damaged entries does where all other voters have some as well: then a leader is
        worth more than none.
        """
        own = self.own
        if not (own.holds_confirmed and own.prompt and own.agrees):
            return False
        return own.intact or not any(map(self.is_intact, other_voters))


def _note(members: set[str], member: str, *, holds: bool) -> None:
    if holds:
        members.add(member)
    else:
        members.discard(member)
