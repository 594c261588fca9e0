"""ReadIndex: how a leader knows that its commit index is the newest (Raft thesis 6.4).

A read must see all that was committed when it was asked. Its index is the commit index at that
moment, and holds if the leader still led then: if a majority answers a heartbeat that was sent
later. One round of heartbeats serves all reads that were asked before it was sent, and while it is
under way the next reads gather for the next one. No disk is asked.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

READS_WAITING_MAX = 64


class ReadAsked(NamedTuple):
    """Who asked, by its own number; ``read_from`` is the entry that it must apply first."""

    asker: str
    number: int
    read_from: int


class ReadRounds:
    """The reads that a leader has not confirmed yet, by the round that will."""

    def __init__(self) -> None:
        self._gathering: list[ReadAsked] = []
        self._under_way: deque[tuple[int, list[ReadAsked]]] = deque()

    def add(self, asked: ReadAsked) -> bool:
        """Takes a read; whether a round must be begun for it now.

        One of an asker that has :data:`READS_WAITING_MAX` in the next round already is dropped: a
        node has one question open at a time, and asks anew what goes unanswered.
        """
        gathering = self._gathering
        if len(gathering) >= READS_WAITING_MAX:
            others = sum(1 for each in gathering if each.asker == asked.asker)
            if others >= READS_WAITING_MAX:
                return False
        gathering.append(asked)
        return not self._under_way

    @property
    def open(self) -> bool:
        """Whether a round is under way that reads wait for; else none wait at all."""
        return bool(self._under_way)

    @property
    def gathering(self) -> bool:
        """Whether reads wait for the next round."""
        return bool(self._gathering)

    def begun(self, number: int) -> None:
        """The round of that number is about to be sent."""
        if self._gathering:
            self._under_way.append((number, self._gathering))
            self._gathering = []

    def confirmed(self, number: int) -> list[ReadAsked]:
        """A majority answered that round or a later one: these reads may be served."""
        served: list[ReadAsked] = []
        while self._under_way and self._under_way[0][0] <= number:
            served += self._under_way.popleft()[1]
        return served

    def drop(self) -> list[ReadAsked]:
        """All that is open: the leadership is over."""
        dropped = [asked for _, reads in self._under_way for asked in reads]
        dropped += self._gathering
        self._under_way.clear()
        self._gathering = []
        return dropped
