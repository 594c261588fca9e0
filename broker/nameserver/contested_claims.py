"""Refused claims that are repeated: after a time the NameServer accepts them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

ACCEPTED_AFTER_MS = 60_000
"""A refused claim that is repeated for so many milliseconds is accepted."""

FRESH_MS = 45_000
"""A claim that was last repeated longer ago, in milliseconds, does not count: brokers repeat theirs
every 30 s."""


@dataclass(slots=True)
class _Refused:
    since: int
    last: int


class ContestedClaims:
    """The refused claims of each connection, and the connections whose claims were accepted.

    A *channel* is the number of a connection. Claims are kept until the connection closes, at most
    ``claims_max`` refused claims for each.
    """

    def __init__(self, clock: Callable[[], int], claims_max: int) -> None:
        self._clock = clock
        self._claims_max = claims_max
        self._refused: dict[int, dict[Hashable, _Refused]] = {}
        self._accepted: dict[Hashable, int] = {}
        self._won: dict[int, dict[Hashable, None]] = {}

    def repeated(self, claim: Hashable, channel: int) -> bool:
        """A refused claim is repeated; returns whether it is accepted from now on."""
        now = self._clock()
        claims = self._refused.setdefault(channel, {})
        found = claims.pop(claim, None)
        if found is None or now - found.last > FRESH_MS:
            found = _Refused(now, now)
        found.last = now
        if now - found.since >= ACCEPTED_AFTER_MS:
            self._accept(claim, channel)
            return True
        claims[claim] = found
        while len(claims) > self._claims_max:
            del claims[next(iter(claims))]
        return False

    def accepted(self, claim: Hashable) -> int | None:
        """The channel whose claim was accepted, or None."""
        return self._accepted.get(claim)

    def settled(self, claim: Hashable) -> None:
        """Drops an accepted claim: it was withdrawn, or its connection is gone."""
        channel = self._accepted.pop(claim, None)
        if channel is not None:
            del self._won[channel][claim]

    def closed(self, channel: int) -> None:
        """Drops all claims of a closed connection."""
        self._refused.pop(channel, None)
        for claim in self._won.pop(channel, ()):
            del self._accepted[claim]

    def _accept(self, claim: Hashable, channel: int) -> None:
        self.settled(claim)
        self._accepted[claim] = channel
        self._won.setdefault(channel, {})[claim] = None
