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
        self._indexed: deque[tuple[int, float, list[Done]]] = deque()

    def add(self, done: Done) -> None:
        """Calls ``done(None)`` when what is applied here is the newest, or at least as new as it
        was when this was called; with :class:`ReadUnconfirmedError` if nobody confirms it."""
        if self._state_wrong():
            done(ReadUnconfirmedError())
            return
        self._gathering.append(done)
        if not self._asked and not self._due:
            self._due = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._due = False
        if self._asked or not self._gathering:
            return
        self._number += 1
        self._asked, self._gathering = self._gathering, []
        seconds = TIMEOUT_ELECTIONS * self._core.config.election_seconds
        self._timer = self._loop.call_later(seconds, self._expire)
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
            seconds = TIMEOUT_ELECTIONS * self._core.config.election_seconds
            self._indexed.append((answer.index, self._loop.time() + seconds, reads))
            self.applied()
        if self._gathering and not self._due:
            self._due = True
            self._loop.call_soon(self._ask)

    def applied(self) -> None:
        """More may be applied now."""
        indexed = self._indexed
        while indexed and indexed[0][0] <= self._applied_index():
            for done in indexed.popleft()[2]:
                done(None)
        if indexed and self._timer is None:
            self._timer = self._loop.call_at(indexed[0][1], self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        late: list[Done] = []
        while self._indexed and self._indexed[0][1] <= now:
            late += self._indexed.popleft()[2]
        if not late:
            late, self._asked = self._asked, []
        self._fail(late)
        if self._gathering and not self._due:
            self._ask()

    def close(self) -> None:
        """Nothing waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._asked, *self._gathering]
        for _, _, reads in self._indexed:
            waiting += reads
        self._asked, self._gathering = [], []
        self._indexed.clear()
        self._fail(waiting)

    def _fail(self, reads: list[Done]) -> None:
        for done in reads:
            done(ReadUnconfirmedError())
