"""How many strangers a node lets in, and how often."""

from __future__ import annotations

from dledger.config import PeerLimits
from dledger.errors import PeerError


class StrangerLimits:
    """Those that are linked, in the order in which they came."""

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._since: dict[str, float] = {}
        self._left = float(limits.strangers_max)  # how many may come now
        self._at = 0.0

    def __contains__(self, peer: str) -> bool:
        return peer in self._since

    @property
    def linked(self) -> int:
        """How many there are."""
        return len(self._since)

    def admit(self, peer: str, now: float) -> str | None:
        """Lets a peer in; returns who has to go for it, if anybody.

        Raises :class:`~dledger.errors.PeerError` if there are, or were, too many.
        """
        limits = self._limits
        left = self._left + (now - self._at) * limits.strangers_per_second
        self._left, self._at = min(left, float(limits.strangers_max)), now
        if self._left < 1:
            raise PeerError(f"{peer} is no member, and too many such peers came")
        oldest = None
        if len(self._since) >= limits.strangers_max:
            oldest = next(iter(self._since))
            if now - self._since[oldest] < limits.stranger_seconds:
                raise PeerError(f"{peer} is no member, and {len(self._since)} such peers are here")
            del self._since[oldest]
        self._left -= 1
        self._since[peer] = now
        return oldest

    def forget(self, peer: str) -> None:
        """It is gone, or a member."""
        self._since.pop(peer, None)
