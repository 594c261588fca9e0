"""Messages that stay invisible while their consumer works: ``auto_renew`` of a push consumer.

The leader looks at them every few seconds, and prolongs those of consumers that are there. That is
whoever has a Telemetry stream at any broker, and whoever sent a heartbeat a moment ago: some
clients open a stream again only minutes after their broker died.

A consumer may never have heard of a message that it was to be given: the leader died before its
answer, or the call ended. It is there, and works on something else. So such a message is prolonged
for minutes, and not for hours.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

from broker.grpc.statuses import ANSWERED
from broker.limits import GRPC, STATE
from broker.pop.auto_renewal import AutoRenewal, Renewable
from broker.pop.pop_request import PoppedMessage
from broker.pop.renewed_receipts import client_hash, renewed

LOOK_SECONDS = 5.0
"""Pace: between two looks at what is to be prolonged."""

HEARTBEATS_SECONDS = 35.0
"""Pace: three heartbeats of a client, and a moment."""

_Key: TypeAlias = tuple[str, str, int]
"""Group, topic, queue id."""

_Told: TypeAlias = tuple[_Key, int, int]
"""A delivery: queue, offset and attempt."""

_Ends: TypeAlias = dict[_Told, float]


class Renewals:
    """Of one broker, while it leads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        renewal: AutoRenewal,
        members: Callable[[str], Iterable[str]],
    ) -> None:
        """``members``: the ids of the clients of a group that have a stream."""
        self._loop = loop
        self._renewal = renewal
        self._members = members
        self._heard: dict[tuple[str, str], float] = {}
        """By group and client: until when its heartbeat counts."""
        self._ends: _Ends = {}
        """When a delivery is not prolonged any more. Infinite until a look finds that its consumer
        was given it, or it is due for the first time: by then it would have been."""
        self._given: set[_Told] = set()
        self._given_earlier: set[_Told] = set()
        """Those that this leader has answered with in this minute, and in the one before. The
        minute is shorter where they are very many."""
        self._minute_ends = 0.0
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """The deliveries that are prolonged."""
        return len(self._ends)

    def start(self) -> None:
        """This node leads."""
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        """Another node leads, which finds what is to be prolonged."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._ends.clear()
        self._heard.clear()
        self._given.clear()
        self._given_earlier.clear()

    def heard(self, group: str, client_id: str) -> None:
        """A client that has no stream says that it is there."""
        now = self._loop.time()
        if len(self._heard) >= GRPC.streams_max and (group, client_id) not in self._heard:
            self._heard = {key: until for key, until in self._heard.items() if until > now}
        if len(self._heard) < GRPC.streams_max or (group, client_id) in self._heard:
            self._heard[group, client_id] = now + HEARTBEATS_SECONDS

    def given(self, group: str, topic: str, messages: Sequence[PoppedMessage]) -> None:
        """A call that still goes on is answered with these."""
        if len(self._given) >= STATE.pop_deliveries_max:  # most of them are acknowledged by now
            self._next_minute()
        self._given.update(
            ((group, topic, each.queue), each.offset, each.delivery_attempt) for each in messages
        )

    def _next_minute(self) -> None:
        self._given_earlier, self._given = self._given, set()
        self._minute_ends = self._loop.time() + GRPC.renewed_seconds

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._loop.time() >= self._minute_ends:
                self._next_minute()
            ends: _Ends = {}
            working = self._heard_of()
            whole: set[str] = set()
            for key in self._renewal.queues():
                group = key[0]
                if group not in whole:  # once for a look: queues and clients are many
                    whole.add(group)
                    working[group].update(map(client_hash, self._members(group)))
                if working[group]:
                    with suppress(*ANSWERED):  # that queue is looked at again
                        await self._renew(key, working[group], ends)
                await asyncio.sleep(0)
            now = self._loop.time()
            soon = now + GRPC.unanswered_seconds_max
            # A client may be away for a look. What it may never have heard of is marked as renewed
            # by now, and would be taken for answered when it is back.
            kept = {told: until for told, until in self._ends.items() if now < until < soon}
            self._ends = kept | ends

    async def _renew(self, key: _Key, working: set[int], ends: _Ends) -> None:
        now, due_ms = self._loop.time(), GRPC.renewed_seconds * 500
        due: list[Renewable] = []
        for each in self._renewal.deliveries(key, working):
            told = (key, each.offset, each.attempt)
            until = self._ends.get(told, math.inf)
            is_due = each.left_ms <= due_ms
            if until == math.inf and (is_due or self._was_given(told)):
                age = GRPC.renewed_seconds - each.left_ms / 1000
                until = now - age + self._seconds_max(told, each.delivery.nonce)
            ends[told] = until
            if is_due and now < until:
                due.append(each)
        await self._renewal.renew(key, due, int(GRPC.renewed_seconds * 1000))

    def _seconds_max(self, told: _Told, nonce: int) -> float:
        """How long a delivery is prolonged, from its first renewal by this leader on."""
        answered = self._was_given(told) or renewed(nonce) == nonce
        return GRPC.renewed_seconds_max if answered else GRPC.unanswered_seconds_max

    def _was_given(self, told: _Told) -> bool:
        return told in self._given or told in self._given_earlier

    def _heard_of(self) -> defaultdict[str, set[int]]:
        """Whose heartbeats count, by group."""
        now = self._loop.time()
        heard: defaultdict[str, set[int]] = defaultdict(set)
        for (group, client), until in self._heard.items():
            if until > now:
                heard[group].add(client_hash(client))
        return heard
