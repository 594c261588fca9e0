"""Long polling: pulls without a result wait here for a message or for their deadline.

A held pull runs again at its deadline, and when a message with a wanted tag arrives in its queue.
No sweep is needed. A message wakes the pulls of its queue in the turn after its entry was applied.
Every pull has a timer of its own. Of very many that are due at once, some run in each turn of the
event loop: clients choose their deadlines, and all of them may wait for one queue. For the same
reason the pulls of a queue that has very many are looked at turn by turn.
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

RUNS_IN_A_TURN = 128
"""Pulls that run before the event loop goes on: some 5 ms."""

LOOKS_IN_A_TURN = 512
"""Pulls of one queue that are compared with new messages before it goes on: some 0.1 ms, and up to
1 ms if all of them are woken."""


def _nothing() -> None: ...


class Owner(Protocol):
    """The owner of a pull: the pull is dropped together with this connection."""

    def on_close(self, callback: Callable[[Self], None], /) -> None:
        """Calls back once it is closed."""

    def __hash__(self) -> int: ...


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that waits for messages of one queue; of any tag if ``codes`` is None.

    ``run`` is called once, unless ``owner`` closes before; a pull over HTTP has none.
    """

    topic: str
    queue_id: int
    codes: frozenset[int] | None
    run: Callable[[], None]
    owner: Owner | None = None
    expression_size: int = 0
    """The characters of its filter; the parsed filter is kept as well."""
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


class LongPolling:
    """All pulls that wait on this node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_owner: dict[Owner, dict[HeldPull, None]] = {}
        self._woken: deque[HeldPull] = deque()
        self._arrived: dict[tuple[str, int], set[int]] = {}
        """Of queues with very many pulls, the tags codes that have come since the last look at all
        of them began."""
        self._look: tuple[tuple[str, int], set[int], Iterator[HeldPull]] | None = None
        """The look under way: queue, codes, and the pulls that are still to be looked at."""
        self._runs_soon = False
        self._count = 0
        self._expression_sizes = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull, deadline: float) -> bool:
        """Keeps ``pull`` until then (the loop's time); False if no more can be kept."""
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

    def arrived(self, topic: str, queue_id: int, new_rows: Bytes) -> None:
        """Messages were applied: pulls that want one of them run from the end of this turn on."""
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
        """All pulls of a queue run from the end of this turn on."""
        for pull in list(self._by_queue.get((topic, queue_id), ())):
            self._run_soon(pull)

    def drop(self, pull: HeldPull) -> None:
        """Forgets a pull that is held, or was woken; it will not run."""
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
        """Forgets all of them."""
        for waiting in list(self._by_queue.values()):
            for pull in list(waiting):
                self.drop(pull)
        while self._woken:
            self.drop(self._woken.popleft())
        self._arrived.clear()
        self._look = None

    def _run_soon(self, pull: HeldPull) -> None:
        self._stop_waiting(pull)  # until it runs it is its owner's, who may go before
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
        """Goes on with the look under way, or begins one. What arrives meanwhile is for the next
        one, which sees all pulls again."""
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
