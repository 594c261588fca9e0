"""Receive requests that found no message wait here until there may be one.

A request is woken by a new message, by a delivery that becomes visible, and by an acknowledgement
that may let the next message of a message group go. A request that then finds a message, or is
cancelled before it could take one, wakes the next request. After a refusal, or an answer that there
is a message, the next one is woken later. So a message does not wake all members of a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from broker.limits import CONSUME
from broker.pop.pop_request import PopRequest
from broker.topics_and_groups import RETRY_PREFIX
from store.message.batch import Batch

REFUSED_MS = 1000
"""Pace: after a refusal the next request looks so much later, because it may be refused too."""

NOTIFIED_MS = 100
"""Pace: for so long a message is left to the member that was told of it."""

_Kind: TypeAlias = tuple[int | None, bool, object, object, object]
"""Queue, order and filter: if one request of a kind finds no message, no other does."""


class _Waiting:
    """The held requests of one group for one topic."""

    __slots__ = ("due_ms", "kinds", "timer")

    def __init__(self) -> None:
        self.kinds: dict[_Kind, dict[asyncio.Future[None], None]] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.due_ms: int | None = None


class HeldReceives:
    """All held receive requests of this node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        """``now_ms`` is the store clock."""
        self._loop = loop
        self._now_ms = now_ms
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        """By topic and group."""
        self._count = 0
        self._expression_sizes = 0
        self.events = 0
        """Grows with each event that may have a message for a request."""

    def __len__(self) -> int:
        return self._count

    async def wait(self, request: PopRequest, visible_ms: int | None, seen: int) -> bool:
        """Waits until the request should look again. Returns False if it may not wait longer.

        ``visible_ms``: when a delivery of its queues becomes visible. ``seen``: :attr:`events`
        before its last look.
        """
        loop = self._loop
        deadline = request.deadline_ms / 1000
        if deadline <= loop.time() or self._is_full(request):
            return False
        if seen != self.events:
            return True
        waiting = self._waiting.setdefault(request.topic, {}).setdefault(request.group, _Waiting())
        wanted = request.filter
        kind = (request.queue, request.fifo, wanted.codes, wanted.selector, wanted.tags)
        woken: asyncio.Future[None] = loop.create_future()
        waiting.kinds.setdefault(kind, {})[woken] = None
        self._counts(request, 1)
        if visible_ms is not None:
            self._wake_at(request.topic, request.group, waiting, visible_ms)
        timer = loop.call_at(deadline, _wake, woken)
        try:
            await woken
        except asyncio.CancelledError:
            if woken.done():
                self.wake(request.topic, request.group)  # another request looks instead
            raise
        finally:
            timer.cancel()
            self._counts(request, -1)
            self._forget(request.topic, request.group, kind, woken)
        return True

    async def pause(self, request: PopRequest, seconds: float) -> bool:
        """A quota lets the request wait for so long, at most until its deadline if that is still
        to come; False if no more can be held."""
        if self._is_full(request):
            return False
        left = request.deadline_ms / 1000 - self._loop.time()
        self._counts(request, 1)
        try:
            await asyncio.sleep(min(seconds, left) if left > 0 else seconds)
        finally:
            self._counts(request, -1)
        return True

    def _is_full(self, request: PopRequest) -> bool:
        size = request.filter.size
        too_long = size and self._expression_sizes + size > CONSUME.held_expressions_max
        return self._count >= CONSUME.held_pulls_max or bool(too_long)

    def _counts(self, request: PopRequest, more: int) -> None:
        self._count += more
        self._expression_sizes += more * request.filter.size

    def batch_arrived(self, batch: Batch) -> None:
        """The messages of an entry were applied: each of its queues may serve a request."""
        self.events += 1
        if self._waiting:
            for run in batch.runs:
                self.arrived(run.topic)

    def arrived(self, topic: str) -> None:
        """A message of the topic was applied. One of a retry topic may be for any topic."""
        self.events += 1
        if topic.startswith(RETRY_PREFIX):
            for each in [*self._waiting]:
                self.wake(each, topic.removeprefix(RETRY_PREFIX))
        groups = self._waiting.get(topic)
        if groups is not None:
            for group in list(groups):
                self.wake(topic, group)

    def wake(self, topic: str, group: str) -> None:
        """Wakes one request of each kind, because there may be a message."""
        self.events += 1
        waiting = self._waiting.get(topic, {}).get(group)
        if waiting is not None:
            for of_kind in waiting.kinds.values():
                _wake(next((each for each in of_kind if not each.done()), None))

    def refused(self, topic: str, group: str) -> None:
        """A request was refused, and leaves a message that may have woken no other. Who looks at
        this moment looks again."""
        self.events += 1
        self.wake_at(topic, group, self._now_ms() + REFUSED_MS)

    def notified(self, topic: str, group: str) -> None:
        """A request was answered that there is a message, and took none."""
        self.wake_at(topic, group, self._now_ms() + NOTIFIED_MS)

    def acknowledged(self, topic: str, group: str, *, was_full: bool) -> None:
        """Wakes requests in FIFO order, because the next message of a message group may go; and
        others if ``was_full``."""
        waiting = self._waiting.get(topic, {}).get(group)
        if was_full or (waiting is not None and any(fifo for _, fifo, *_ in waiting.kinds)):
            self.wake(topic, group)

    def wake_at(self, topic: str, group: str, visible_ms: int) -> None:
        """Wakes a request when a delivery becomes visible."""
        waiting = self._waiting.get(topic, {}).get(group)
        if waiting is not None:
            self._wake_at(topic, group, waiting, visible_ms)

    def wake_all(self) -> None:
        """Ends all waits: this node leads no more, or stops."""
        for groups in self._waiting.values():
            for waiting in groups.values():
                for of_kind in waiting.kinds.values():
                    for each in of_kind:
                        _wake(each)

    def _wake_at(self, topic: str, group: str, waiting: _Waiting, visible_ms: int) -> None:
        if waiting.due_ms is not None and waiting.due_ms <= visible_ms:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        waiting.due_ms = visible_ms
        seconds = max(visible_ms - self._now_ms(), 1) / 1000
        waiting.timer = self._loop.call_later(seconds, self._due, topic, group, waiting)

    def _due(self, topic: str, group: str, waiting: _Waiting) -> None:
        due_ms, waiting.timer, waiting.due_ms = waiting.due_ms, None, None
        if due_ms is not None and due_ms > self._now_ms():
            self._wake_at(topic, group, waiting, due_ms)  # the store clock runs slower now
        else:
            self.wake(topic, group)

    def _forget(self, topic: str, group: str, kind: _Kind, woken: asyncio.Future[None]) -> None:
        groups = self._waiting[topic]
        waiting = groups[group]
        del waiting.kinds[kind][woken]
        if not waiting.kinds[kind]:
            del waiting.kinds[kind]
        if not waiting.kinds:
            if waiting.timer is not None:
                waiting.timer.cancel()
            del groups[group]
        if not groups:
            del self._waiting[topic]


def _wake(woken: asyncio.Future[None] | None) -> None:
    if woken is not None and not woken.done():
        woken.set_result(None)
