"""Asks one peer after the other for damaged entries, until all are whole.

Peers give committed entries only. :class:`Holes` decides whether an entry fits. The scrubber has
holes while the node runs; a recovering node has one in a log that cannot be opened without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.node.peer_calls import Answer, PeerCalls
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.wire.service_messages import FetchRequest, FetchResponse, FetchStatus
from store.log.entry import Entry

RETRY_SECONDS = 1.0


class Holes(Protocol):
    """The damaged entries of a log. Called on the event loop."""

    def sources(self) -> Sequence[str]:
        """The peers to ask, best first."""

    def wanted(self, rounds: int) -> tuple[int, int] | None:
        """The first and the last entry to ask for; ``None`` if all are whole.

        ``rounds`` says how often all peers have been asked since something was repaired.
        """

    def fill(self, peer: str, entries: Sequence[Entry], done: Callable[[bool], None]) -> None:
        """Puts entries back; ``done`` is told, now or later, whether any was."""

    def expired(self, peer: str, index: int) -> None:
        """The peer has expired the entry that it was asked for."""


class Repairer:
    """Of one node. One question is under way at a time."""

    def __init__(self, *, calls: PeerCalls, loop: asyncio.AbstractEventLoop, holes: Holes) -> None:
        self._calls = calls
        self._loop = loop
        self._holes = holes
        self._tries = 0
        self._busy = False

    def look(self) -> None:
        """Begins to ask, if anything is damaged and there is somebody to ask."""
        if not self._busy:
            self._busy = True
            self._ask()

    def _ask(self) -> None:
        peers = self._holes.sources()
        rounds, turn = divmod(self._tries, max(len(peers), 1))
        wanted = self._holes.wanted(rounds) if peers else None
        if wanted is None:
            self._busy = False
            return
        peer, (first, last) = peers[turn], wanted
        self._tries += 1
        self._calls.call(
            peer,
            lambda number: FetchRequest(number, first, last, PIECE_BYTES),
            lambda answer: self._answered(peer, first, answer),
        )

    def _answered(self, peer: str, first: int, answer: Answer | None) -> None:
        if isinstance(answer, FetchResponse):
            if answer.entries and answer.entries[0].index == first:
                self._holes.fill(peer, answer.entries, self._filled)
                return
            if answer.status is FetchStatus.EXPIRED and answer.first_index > first:
                self._holes.expired(peer, first)
        self._filled(False)

    def _filled(self, some: bool) -> None:
        if some:
            self._tries -= 1  # the peer that had this one is asked for the next
            self._ask()
        else:
            self._loop.call_later(RETRY_SECONDS, self._ask)
