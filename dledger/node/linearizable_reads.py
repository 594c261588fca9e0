"""Linearizable reads of a node: they read the applied state once it is known to be new enough.

All reads of one turn of the event loop share one question to the leader. Reads that come meanwhile
wait for the next question (:mod:`dledger.raft.read_index` does the same on the leader). A read
waits until the entry of its read index is applied here. A read that takes too long fails: a
question or its answer may be lost, and a follower that is cut off hears nothing.

A leader may still answer a question of an earlier process of this node. So a process must not use
the numbers of an earlier one: its numbers begin with the monotonic time, which goes on from process
to process. That time starts again with a reboot. But a reboot takes longer than an election
timeout, and no leader keeps a question for longer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from dledger.errors import ProposeError, ReadUnconfirmedError
from dledger.raft.core import Raft
from dledger.raft.ready import ReadIndex

Done: TypeAlias = Callable[[ProposeError | None], None]

TIMEOUT_ELECTIONS = 2.0
"""Election timeouts that a question may take. Then the present leader is asked again."""

NUMBERS_PER_SECOND = 1_000_000_000
"""For each second the numbers of a new process begin so much higher. No node asks more often."""


class LinearizableReads:
    """The reads that wait on one node."""

    def __init__(
        self,
        *,
        core: Raft,
        loop: asyncio.AbstractEventLoop,
        applied_index: Callable[[], int],
        state_wrong: Callable[[], str],
        advance: Callable[[], None],
    ) -> None:
        """``advance`` has done what the core asks for."""
        self._core = core
        self._applied_index = applied_index
        self._state_wrong = state_wrong
        self._advance = advance
        self._loop = loop
        self._gathering: list[Done] = []
        self._asked: list[Done] = []
        self._number = int(loop.time() * NUMBERS_PER_SECOND)
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        """Ends the time of the question."""
        self._indexed: deque[tuple[int, asyncio.TimerHandle, list[Done]]] = deque()
        """Reads that wait until that entry is applied, and what ends their time."""

    def add(self, done: Done) -> None:
        """Calls ``done(None)`` when what is applied here is the newest, or at least as new as it
        was when this was called; with :class:`ReadUnconfirmedError` if nobody confirms it."""
        if self._state_wrong():
            done(ReadUnconfirmedError())
            return
        self._gathering.append(done)
        self._ask_soon()

    def _ask_soon(self) -> None:
        if self._gathering and not self._asked and not self._due:
            self._due = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._due = False
        if self._asked or not self._gathering:
            return
        self._number += 1
        self._asked, self._gathering = self._gathering, []
        self._timer = self._end_after(self._unanswered)
        self._core.read_index(self._number, self._loop.time())
        self._advance()

    def answered(self, answer: ReadIndex) -> None:
        """The core says how far must be applied, or that nobody knows."""
        if answer.id != self._number or not self._asked:
            return  # of a question that was given up
        reads, self._asked = self._asked, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if answer.index is None:
            self._fail(reads)
        else:
            self._indexed.append((answer.index, self._end_after(self._not_applied), reads))
            self.applied()
        self._ask_soon()

    def applied(self) -> None:
        """More may be applied now."""
        indexed = self._indexed
        while indexed and indexed[0][0] <= self._applied_index():
            _index, timer, reads = indexed.popleft()
            timer.cancel()
            for done in reads:
                done(None)

    def _end_after(self, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(TIMEOUT_ELECTIONS * self._core.config.election_seconds, act)

    def _unanswered(self) -> None:
        self._timer = None
        late, self._asked = self._asked, []
        self._fail(late)
        self._ask_soon()

    def _not_applied(self) -> None:
        """All have the same time, so those that wait longest are late."""
        self._fail(self._indexed.popleft()[2])

    def close(self) -> None:
        """Nothing waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._asked, *self._gathering]
        for _, timer, reads in self._indexed:
            timer.cancel()
            waiting += reads
        self._asked, self._gathering = [], []
        self._indexed.clear()
        self._fail(waiting)

    def _fail(self, reads: list[Done]) -> None:
        for done in reads:
            done(ReadUnconfirmedError())
