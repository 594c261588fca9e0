"""Enforces the quotas of a broker: clients beyond a quota must wait.

Accepted messages are never dropped. A sender beyond a quota gets its answers later. The wait of one
answer is bounded, because a client takes a silent broker for dead, and may send stored messages
again. So a sender with too much debt is refused before anything is stored. From a client with
one-way requests nothing is read until its debt is paid. A consumer waits and looks again, up to the
end of its long poll.

Each node counts alone: the messages that it takes as leader, and those that it delivers. Without
any quota ``active`` is None, which costs the flows only that check.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from math import ceil
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from broker.limits import QUOTAS
from broker.quotas.quota import ACCOUNT, CLIENT, EACH, TOPIC, Entity, OverQuotaError, Quota
from broker.quotas.token_bucket import TokenBucket


class Caller(NamedTuple):
    """The caller of a request, as far as the wire knows; empty names are unknown."""

    account: str = ""
    client_id: str = ""


FindCaller: TypeAlias = Callable[[], Caller]

NOBODY = Caller()


class _Buckets(NamedTuple):
    """The token buckets of one entity: messages and bytes, in and out; None without a limit."""

    produce_messages: TokenBucket | None
    produce_bytes: TokenBucket | None
    consume_messages: TokenBucket | None
    consume_bytes: TokenBucket | None

    def is_idle(self, now: float) -> bool:
        return all(each is None or each.is_idle(now) for each in self)


class Throttle:
    """The quotas of one broker."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds of a monotonic clock."""
        self._clock = clock
        self._quotas: dict[Entity, Quota] = {}
        self._buckets: dict[Entity, _Buckets] = {}
        self._turns: WeakValueDictionary[Entity, asyncio.Lock] = WeakValueDictionary()
        self.throttled_seconds: defaultdict[Entity, float] = defaultdict(float)
        """The seconds that requests have waited since the start, by quota."""

    @property
    def active(self) -> Throttle | None:
        """This object if there is any quota, otherwise None."""
        return self if self._quotas else None

    @property
    def quotas(self) -> Mapping[Entity, Quota]:
        """All present quotas."""
        return self._quotas

    def put(self, entity: Entity, quota: Quota) -> None:
        """Sets the quota of an entity; a quota without limits removes it."""
        if any(quota):
            self._quotas[entity] = quota
        else:
            self._quotas.pop(entity, None)
        for known in [each for each in self._buckets if each.type == entity.type]:
            if entity.name in (EACH, known.name):
                del self._buckets[known]

    def clear(self) -> None:
        """Removes all quotas."""
        self._quotas.clear()
        self._buckets.clear()

    def leads_no_more(self) -> None:
        """Drops all debts: the next leader counts by itself."""
        self._buckets.clear()

    def produced(self, caller: Caller, topic: str, messages: int, size: int) -> float:
        """Charges a send; returns the seconds of debt. The answer waits for so long, at most
        :attr:`~broker.limits.QuotaLimits.wait_seconds_max`."""
        now, most = self._clock(), 0.0
        for entity, buckets in self._of(caller, topic, now):
            debt = _take(buckets.produce_messages, messages, now)
            debt = max(debt, _take(buckets.produce_bytes, size, now))
            self._note(entity, debt)
            most = max(most, debt)
        return most

    def owes(self, caller: Caller, topic: str) -> bool:
        """Whether the sender is in debt from earlier sends. Nothing is stored for the topic, which
        may be any text at this point.

        Raises :class:`~broker.quotas.quota.OverQuotaError` if the debt is so large that an answer
        would not come in time.
        """
        now, owes = self._clock(), False
        for entity in _entities(caller, topic):
            buckets = self._buckets.get(entity)
            if buckets is None:
                continue
            both = buckets.produce_messages, buckets.produce_bytes
            debt = max((each.debt(now) for each in both if each is not None), default=0.0)
            if debt >= QUOTAS.debt_seconds_max:
                what = f"seconds of debt of the quota of {entity.type} {entity.name}"
                limit = int(QUOTAS.debt_seconds_max)
                raise OverQuotaError(ceil(debt), limit, what, int(debt) - limit + 1)
            owes |= debt > 0
        return owes

    def consumes(self, caller: Caller, topic: str) -> float:
        """Checks a request for messages; returns the seconds after which it may look again, 0 if it
        may have messages now."""
        now, most = self._clock(), 0.0
        for entity, buckets in self._of(caller, topic, now):
            both = buckets.consume_messages, buckets.consume_bytes
            debt = max((each.debt(now) for each in both if each is not None), default=0.0)
            self._note(entity, debt)
            most = max(most, debt)
        return min(most, QUOTAS.wait_seconds_max)

    def consumed(self, caller: Caller, topic: str, messages: int, size: int) -> None:
        """Charges delivered messages."""
        now = self._clock()
        for _entity, buckets in self._of(caller, topic, now):
            _take(buckets.consume_messages, messages, now)
            _take(buckets.consume_bytes, size, now)

    @asynccontextmanager
    async def turn(self, caller: Caller, topic: str) -> AsyncIterator[None]:
        """Requests for messages with a common quota for them enter one at a time, so that each
        counts the messages of the one before."""
        async with AsyncExitStack() as entered:
            # All enter their quotas in the same order of types.
            for entity, buckets in list(self._of(caller, topic, self._clock())):
                if buckets.consume_messages or buckets.consume_bytes:
                    lock = self._turns.setdefault(entity, asyncio.Lock())
                    await entered.enter_async_context(lock)
            yield

    def _note(self, entity: Entity, debt: float) -> None:
        if debt <= 0:
            return
        told = entity
        if entity not in self._quotas:  # there may be any number of client names
            told = Entity(entity.type, EACH)
        self.throttled_seconds[told] += min(debt, QUOTAS.wait_seconds_max)

    def _of(self, caller: Caller, topic: str, now: float) -> Iterable[tuple[Entity, _Buckets]]:
        """The buckets of a request."""
        for entity in _entities(caller, topic):
            buckets = self._buckets.get(entity)
            if buckets is None:
                quota = self._quotas.get(entity) or self._quotas.get(Entity(entity.type, EACH))
                if quota is None:
                    continue
                buckets = self._add(entity, quota, now)
            yield entity, buckets

    def _add(self, entity: Entity, quota: Quota, now: float) -> _Buckets:
        if len(self._buckets) >= QUOTAS.buckets_max:
            self._forget(now)
        made = _Buckets(*(TokenBucket(rate) if rate else None for rate in quota))
        self._buckets[entity] = made
        return made

    def _forget(self, now: float) -> None:
        """Drops half of the buckets: idle clients first, then the oldest. Topics and accounts are
        dropped last: clients may choose any name, and a flood of names must not forgive other
        debts."""
        going = sorted(
            self._buckets, key=lambda each: (each.type != CLIENT, not self._is_idle(each, now))
        )
        for entity in going[: max(len(going) // 2, 1)]:
            del self._buckets[entity]

    def _is_idle(self, entity: Entity, now: float) -> bool:
        return self._buckets[entity].is_idle(now)


def _entities(caller: Caller, topic: str) -> Iterator[Entity]:
    """The entities whose quotas count for a request."""
    for type_, name in ((TOPIC, topic), (ACCOUNT, caller.account), (CLIENT, caller.client_id)):
        if name:
            yield Entity(type_, name)


def _take(bucket: TokenBucket | None, units: int, now: float) -> float:
    return 0.0 if bucket is None else bucket.take(units, now)
