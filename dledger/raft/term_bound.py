"""How far a peer may raise a node's term.

A node that hears of a higher term takes it over. So one message of a broken peer with a term close
to the largest would leave no room for another election, on all disks and for ever. In a sound group
terms rise by one with each election, and an election takes milliseconds at least. To a node that
was away the group may be ahead by all elections since. A term that is farther away is refused. One
that is nearer is approached no faster than elections can have raised it. A node whose term was
raised in this way is not lost: the others approach its term just as fast.
"""

from __future__ import annotations

from dledger.errors import PeerError

TERM_MAX = (1 << 63) - 1
"""A term is an i64 on disk."""

DISTANCE_MAX = 1 << 40
"""A term that is farther away than this is refused."""

JUMP_MAX = 1 << 22
"""By how much a peer may raise a term at once."""

RISE_PER_SECOND = 1 << 20
"""By how much after that: more than the elections of any group, and the way to :data:`TERM_MAX`
takes 250,000 years."""

ROOM_SHARE = 1 << 16
"""No peer takes more than this part of the terms that are left."""


class TermBound:
    """What one node allows. Of its own elections nothing is counted."""

    def __init__(self, now: float) -> None:
        self._left = float(JUMP_MAX)
        self._at = now

    def jump(self, own: int, now: float) -> int:
        """By how much a peer may raise the term ``own`` now; by one always, while there is one."""
        allowed = int(self._allowed(now))
        return max(min(1, TERM_MAX - own), min(allowed, (TERM_MAX - own) // ROOM_SHARE))

    def _allowed(self, now: float) -> float:
        return min(float(JUMP_MAX), self._left + (now - self._at) * RISE_PER_SECOND)

    def check(self, sender: str, own: int, told: int) -> None:
        """Raises :class:`~dledger.errors.PeerError` for a term that cannot be right."""
        if told - own > max(1, min(DISTANCE_MAX, (TERM_MAX - own) // ROOM_SHARE)):
            raise PeerError(f"{sender} tells of term {told}, too far from term {own}")

    def raised(self, by: int, now: float) -> None:
        """A peer raised the term."""
        self._left, self._at = max(0.0, self._allowed(now) - by), now
