"""Who must wait, and for how long: the quotas of a broker at work.

Nothing that was taken is dropped. Who sends beyond a quota gets its answers later. The wait of one
answer is bounded: a client takes a silent broker for dead, and may send again what is stored. So
who owes too much is refused before anything is stored. Of a client that wants no answers nothing is
read until its debt is paid. Who asks for messages waits and asks again, up to the end of its long
poll.

A quota is of one node: of what it takes in as leader, and of what it gives out. Without any
quota ``active`` is None, and the doors do nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil
from typing import NamedTuple, TypeAlias

from broker.limits import QUOTAS
from broker.quotas.quota import ACCOUNT, CLIENT, EACH, TOPIC, Entity, OverQuotaError, Quota
from broker.quotas.token_bucket import TokenBucket


class Caller(NamedTuple):
    """Who asks, as far as the wire knows; empty names are unknown."""

    account: str = ""
    client_id: str = ""


FindCaller: TypeAlias = Callable[[], Caller]

NOBODY = Caller()


class _Buckets(NamedTuple):
    """Of one entity: of messages and of bytes, in and out; None without a limit."""

    produce_messages: TokenBucket | None
    produce_bytes: TokenBucket | None
    consume_messages: TokenBucket | None
    consume_bytes: TokenBucket | None

    def is_idle(self, now: float) -> bool:
        return all(each is None or each.is_idle(now) for each in self)


class Throttle:
    """The quotas of one broker."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds that never run backward."""
        self._clock = clock
        self._quotas: dict[Entity, Quota] = {}
        self._buckets: dict[Entity, _Buckets] = {}
        self.throttled_seconds: defaultdict[Entity, float] = defaultdict(float)
        """How long requests have waited since the start, by the quota that made them wait."""

    @property
    def active(self) -> Throttle | None:
        """Itself if there is any quota."""
        return self if self._quotas else None

    @property
    def quotas(self) -> Mapping[Entity, Quota]:
        """All that count now."""
        return self._quotas

    def put(self, entity: Entity, quota: Quota) -> None:
        """An entity has another quota; one without any limit is none."""
        if any(quota):
            self._quotas[entity] = quota
        else:
            self._quotas.pop(entity, None)
        for known in [each for each in self._buckets if each.type == entity.type]:
            if entity.name in (EACH, known.name):
                del self._buckets[known]

    def clear(self) -> None:
        """No quotas are known."""
        self._quotas.clear()
        self._buckets.clear()

    def leads_no_more(self) -> None:
        """What was taken here is no debt to the next leader: it refuses by its own."""
        self._buckets.clear()

    def produced(self, caller: Caller, topic: str, messages: int, size: int) -> float:
        """Somebody sends; returns the seconds of debt. Its answer waits for as many, and for
        :attr:`~broker.limits.QuotaLimits.wait_seconds_max` at most."""
        now, most = self._clock(), 0.0
        for entity, buckets in self._of(caller, topic, now):
            debt = _take(buckets.produce_messages, messages, now)
            debt = max(debt, _take(buckets.produce_bytes, size, now))
            self._note(entity, debt)
            most = max(most, debt)
        return most

    def owes(self, caller: Caller, topic: str) -> bool:
        """Whether somebody sends who has not paid yet for what it sent before. Nothing is kept of
        the topic: it may be any text still.

        Raises :class:`~broker.quotas.quota.OverQuotaError` for who owes so much that an answer
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
                what = f"seconds' worth of the quota of {entity.type} {entity.name} are owed"
                limit = int(QUOTAS.debt_seconds_max)
                raise OverQuotaError(ceil(debt), limit, what, int(debt) - limit + 1)
            owes |= debt > 0
        return owes

    def consumes(self, caller: Caller, topic: str) -> float:
        """Somebody asks for messages; returns the seconds after which the request may ask again, 0
        if it may have them now."""
        now, most = self._clock(), 0.0
        for entity, buckets in self._of(caller, topic, now):
            both = buckets.consume_messages, buckets.consume_bytes
            debt = max((each.debt(now) for each in both if each is not None), default=0.0)
            self._note(entity, debt)
            most = max(most, debt)
        return min(most, QUOTAS.wait_seconds_max)

    def consumed(self, caller: Caller, topic: str, messages: int, size: int) -> None:
        """Somebody was given messages."""
        now = self._clock()
        for _entity, buckets in self._of(caller, topic, now):
            _take(buckets.consume_messages, messages, now)
            _take(buckets.consume_bytes, size, now)

    def _note(self, entity: Entity, debt: float) -> None:
        if debt <= 0:
            return
        told = entity
        if entity not in self._quotas:  # names of clients may be any number
            told = Entity(entity.type, EACH)
        self.throttled_seconds[told] += min(debt, QUOTAS.wait_seconds_max)

    def _of(self, caller: Caller, topic: str, now: float) -> Iterable[tuple[Entity, _Buckets]]:
        """The buckets that a request takes from."""
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
        """Makes room, always for half, as all are looked at: clients at rest go first, then those
        that came first. Clients may give themselves any name: topics and accounts go last, so no
        flood of names forgives their debts."""
        going = sorted(
            self._buckets, key=lambda each: (each.type != CLIENT, not self._is_idle(each, now))
        )
        for entity in going[: max(len(going) // 2, 1)]:
            del self._buckets[entity]

    def _is_idle(self, entity: Entity, now: float) -> bool:
        return self._buckets[entity].is_idle(now)


def _entities(caller: Caller, topic: str) -> Iterator[Entity]:
    """Whose quotas may count for a request."""
    for type_, name in ((TOPIC, topic), (ACCOUNT, caller.account), (CLIENT, caller.client_id)):
        if name:
            yield Entity(type_, name)


def _take(bucket: TokenBucket | None, units: int, now: float) -> float:
    return 0.0 if bucket is None else bucket.take(units, now)
