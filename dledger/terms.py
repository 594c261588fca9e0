"""How far the terms that peers tell may raise a node's own.

Any node may raise its term at any time, and all others follow: one message of a broken peer with a
term close to the largest would leave the group no room for another election, on disk and for ever.
So a term counts only if it is near what is known. In an honest group terms rise by one with each
election, and an election takes milliseconds at least. Of a node that was away, the group may be
ahead by all the elections since.
"""

from __future__ import annotations

from dledger.errors import PeerError

TERM_MAX = (1 << 63) - 1
"""A term is an i64 on disk."""

JUMP_MAX = 1 << 32
"""More than the elections of a group that elects a hundred leaders a second, for a year."""

RISE_PER_SECOND = 1 << 10
"""How fast a node that jumped may jump again: more elections than any group can hold. The way to
:data:`TERM_MAX` takes longer than any disk lasts."""

ROOM_SHARE = 1 << 16
"""No jump takes more than this part of the terms that are left."""


class TermBound:
    """What one node allows. Of its own elections nothing is counted."""

    def __init__(self, now: float) -> None:
        self._left = float(JUMP_MAX)
        self._at = now

    def jump(self, own: int, now: float) -> int:
        """By how much a peer may raise the term ``own`` now; by one always, while there is one."""
        allowed = min(JUMP_MAX, self._left + (now - self._at) * RISE_PER_SECOND)
        left = TERM_MAX - own
        return min(left, max(1, min(int(allowed), left // ROOM_SHARE)))

    def check(self, sender: str, own: int, told: int, now: float) -> None:
        """Raises :class:`~dledger.errors.PeerError` for a term that cannot be right."""
        if told - own > self.jump(own, now):
            raise PeerError(f"{sender} tells of term {told}, too far from term {own}")

    def raised(self, by: int, now: float) -> None:
        """A peer raised the term."""
        allowed = min(JUMP_MAX, self._left + (now - self._at) * RISE_PER_SECOND)
        self._left, self._at = max(0.0, allowed - by), now
