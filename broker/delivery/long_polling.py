"""Long polling: pulls without a result wait for a message or for their deadline.

A held pull runs again at its deadline, and when a message with a wanted tag arrives in its queue. A
message wakes the pulls of its queue in the turn after its entry was applied. Every pull has a
timer, so no sweep is needed. Clients choose the deadlines, and all may wait for one queue. So each
turn of the event loop runs a limited number of due pulls, and compares a limited number of pulls of
one queue with new messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, Self

from broker.delivery.message_reader import rows
from broker.limits import CLIENTS, CONSUME
from store.io.filesystem import Bytes
from store.message.batch import Batch

RUNS_IN_A_TURN = 128
"""Pulls that run in one turn of the event loop: about 5 ms of work."""

LOOKS_IN_A_TURN = 512
"""Pulls of one queue that are compared with new messages in one turn: about 0.1 ms of work, up to 1
ms if all are woken."""


def _nothing() -> None: ...


class Owner(Protocol):
    """The connection of a pull: the pull is dropped when it closes."""

    def on_close(self, callback: Callable[[Self], None], /) -> None:
        """Calls ``callback`` once it is closed."""

    def __hash__(self) -> int: ...


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that waits for messages of one queue; of any tag if ``codes`` is None.

    ``run`` is called once, unless ``owner`` closes before. A pull over HTTP has no owner.
    """

    topic: str
    queue_id: int
    codes: frozenset[int] | None
    run: Callable[[], None]
    owner: Owner | None = None
    expression_size: int = 0
    """The characters of its filter. They count for the memory limit."""
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


class LongPolling:
    """All held pulls of this node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_owner: dict[Owner, dict[HeldPull, None]] = {}
        self._woken: deque[HeldPull] = deque()
        self._arrived: dict[tuple[str, int], set[int]] = {}
        """For queues with very many pulls: the tags codes that arrived since the last scan
        began."""
        self._look: tuple[tuple[str, int], set[int], Iterator[HeldPull]] | None = None
        """The scan in progress: queue, codes, and the pulls that remain."""
        self._runs_soon = False
        self._count = 0
        self._expression_sizes = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull, deadline: float) -> bool:
        """Holds ``pull`` until ``deadline`` (the loop's time). Returns False if no more pulls can
        be held."""
        if self._count >= CONSUME.held_pulls_max:
            return False
        expression_sizes = self._expression_sizes + pull.expression_size
        if pull.expression_size and expression_sizes > CONSUME.held_expressions_max:
            return False
        owner = pull.owner
        pulls = None if owner is None else self._by_owner.get(owner)
        if pulls is not None and len(pulls) >= CLIENTS.held_pulls_max:
            return False
        self._count += 1
        self._expression_sizes = expression_sizes
        self._by_queue.setdefault((pull.topic, pull.queue_id), {})[pull] = None
        pull.timer = self._loop.call_at(deadline, self._expired, pull)
        if owner is not None:
            if pulls is None:
                pulls = self._by_owner[owner] = {}
                owner.on_close(self._closed)
            pulls[pull] = None
        return True

    def batch_arrived(self, batch: Batch) -> None:
        """The messages of an entry were applied; see :meth:`arrived`."""
        waiting = self._by_queue
        if waiting:
            for run in batch.runs:
                if (run.topic, run.queue_id) in waiting:
                    self.arrived(run.topic, run.queue_id, batch.rows_of(run))

    def arrived(self, topic: str, queue_id: int, new_rows: Bytes) -> None:
        """Messages were applied: pulls that match one of them run from the end of this turn on."""
        waiting = self._by_queue.get((topic, queue_id))
        if waiting is None:
            return
        if len(waiting) > LOOKS_IN_A_TURN:
            known = self._arrived.setdefault((topic, queue_id), set())
            known.update(code for _, _, code in rows(new_rows))
            self._go_on()
            return
        codes: set[int] | None = None
        for pull in list(waiting):
            if pull.codes is not None:
                if codes is None:
                    codes = {code for _, _, code in rows(new_rows)}
                if pull.codes.isdisjoint(codes):
                    continue
            self._run_soon(pull)

    def wake(self, topic: str, queue_id: int) -> None:
        """Runs all pulls of a queue, from the end of this turn on."""
        for pull in list(self._by_queue.get((topic, queue_id), ())):
            self._run_soon(pull)

    def wake_all(self) -> None:
        """Runs all pulls, from the end of this turn on."""
        for topic, queue_id in list(self._by_queue):
            self.wake(topic, queue_id)

    def drop(self, pull: HeldPull) -> None:
        """Drops a held or woken pull; it will not run."""
        pull.run = _nothing
        self._stop_waiting(pull)
        self._disown(pull)

    def _stop_waiting(self, pull: HeldPull) -> None:
        key = (pull.topic, pull.queue_id)
        waiting = self._by_queue.get(key)
        if waiting is None or pull not in waiting:
            return
        del waiting[pull]
        self._count -= 1
        self._expression_sizes -= pull.expression_size
        if not waiting:
            del self._by_queue[key]
        if pull.timer is not None:
            pull.timer.cancel()

    def _disown(self, pull: HeldPull) -> None:
        if pull.owner is not None:
            self._by_owner.get(pull.owner, {}).pop(pull, None)

    def close(self) -> None:
        """Drops all pulls."""
        for waiting in list(self._by_queue.values()):
            for pull in list(waiting):
                self.drop(pull)
        while self._woken:
            self.drop(self._woken.popleft())
        self._arrived.clear()
        self._look = None

    def _run_soon(self, pull: HeldPull) -> None:
        self._stop_waiting(pull)  # until it runs, its owner may still close
        self._woken.append(pull)
        self._go_on()

    def _go_on(self) -> None:
        if (self._woken or self._arrived or self._look) and not self._runs_soon:
            self._runs_soon = True
            self._loop.call_soon(self._run_woken)

    def _run_woken(self) -> None:
        try:
            for _ in range(min(RUNS_IN_A_TURN, len(self._woken))):
                pull = self._woken.popleft()
                self._disown(pull)
                pull.run()
            if len(self._woken) < RUNS_IN_A_TURN:
                self._look_on()
        finally:
            self._runs_soon = False
            self._go_on()

    def _look_on(self) -> None:
        """Continues the scan, or begins one. Messages that arrive meanwhile are for the next scan,
        which compares all pulls again."""
        if self._look is None:
            if not self._arrived:
                return
            key = next(iter(self._arrived))
            pulls = iter(list(self._by_queue.get(key, ())))
            self._look = key, self._arrived.pop(key), pulls
        key, codes, pulls = self._look
        waiting, looked = self._by_queue.get(key, {}), 0
        for pull in islice(pulls, LOOKS_IN_A_TURN):
            looked += 1
            if pull in waiting and (pull.codes is None or not pull.codes.isdisjoint(codes)):
                self._run_soon(pull)
        if looked < LOOKS_IN_A_TURN:
            self._look = None

    def _expired(self, pull: HeldPull) -> None:
        self._run_soon(pull)

    def _closed(self, owner: Owner) -> None:
        for pull in list(self._by_owner.pop(owner, ())):
            self.drop(pull)
