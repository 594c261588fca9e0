"""Which peers this node is linked with, and which links broke lately. On the event loop."""

from __future__ import annotations

import asyncio

BROKEN_MAX = 64
"""Pace: so many broken links are remembered. Strangers may dial, too."""


class PeerLinks:
    """Is told by the transport."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._up: set[str] = set()
        self._broken: dict[str, float] = {}
        """When the last link to a peer broke, by the loop's time; the oldest first."""

    def connected(self, peer: str) -> None:
        """A link came up."""
        self._up.add(peer)

    def lost(self, peer: str) -> None:
        """The link is gone."""
        self._up.discard(peer)
        self._broken.pop(peer, None)
        self._broken[peer] = self._loop.time()
        if len(self._broken) > BROKEN_MAX:
            del self._broken[next(iter(self._broken))]

    def is_steady(self, peer: str, seconds: float) -> bool:
        """Whether the link is up and did not break within the last ``seconds``."""
        broken = self._broken.get(peer)
        return peer in self._up and (broken is None or self._loop.time() - broken >= seconds)
