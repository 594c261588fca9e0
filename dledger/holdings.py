"""What each member held durably of what is committed, as leaders have told it.

A leader counts a member's confirmations; its heartbeats pass on how far they go, so that every
member knows, a heartbeat's time later, what every other one holds. Entries that are committed are
never cut, so a disk whose log ends before that has lost some of them: an old copy was put in its
place. It neither gets nor gives a vote, and the next leader has it refilled, though it never heard
its confirmations itself.

It is saved now and then (``keeper.py``), and what was saved last is known again after a restart.
With asynchronous flush nothing is told, because there a power failure may take what was confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Holding(NamedTuple):
    """All up to ``last_index`` is committed, and durable on the disk of that incarnation."""

    node: str
    incarnation: int
    last_index: int


class Holdings:
    """What one node knows of all members."""

    def __init__(self, known: Iterable[Holding] = (), *, kept: bool = True) -> None:
        """``kept`` is false where a confirmation is no promise: then nothing is ever known."""
        self.kept = kept
        self._known: dict[str, Holding] = {}
        self.learn(known)

    def learn(self, told: Iterable[Holding]) -> None:
        """A leader says so. Of a member that is on another disk now, the last word counts."""
        if not self.kept:
            return
        for holding in told:
            before = self._known.get(holding.node)
            if (
                before is None
                or before.incarnation != holding.incarnation
                or before.last_index < holding.last_index
            ):
                self._known[holding.node] = holding

    def copy(self) -> Holdings:
        """What is known now, whatever is learned later."""
        return Holdings(self._known.values(), kept=self.kept)

    def known(self) -> list[Holding]:
        """All that is known, in the order of names."""
        return [self._known[node] for node in sorted(self._known)]

    def lacks(self, node: str, incarnation: int, last_index: int) -> bool:
        """Whether a log that ends there has lost committed entries which that disk held."""
        known = self._known.get(node)
        return (
            known is not None and known.incarnation == incarnation and last_index < known.last_index
        )
