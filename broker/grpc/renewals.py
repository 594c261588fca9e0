"""When deliveries over gRPC are renewed: ``auto_renew`` of a push consumer.

The leader checks these deliveries every few seconds, and renews those of connected consumers. A
consumer is connected if it has a Telemetry stream at any broker, or has sent a heartbeat a moment
ago: some clients reopen their stream only minutes after their broker died.

A consumer may not have got a message, because the leader died before its answer, or the call ended.
The consumer is connected, but does not work on that message. So only what was answered is renewed:
the rest is received again a minute later. The first check after the answer renews already, and so
tells later leaders that the consumer has the message. What was answered after the last check of a
leader that dies is received twice, if the work on it takes longer than that minute.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

from broker.errors import ANSWERED
from broker.limits import GRPC, STATE
from broker.pop.auto_renewal import AutoRenewal, Renewable
from broker.pop.pop_request import PoppedMessage
from broker.pop.renewed_receipts import client_hash, was_answered

LOOK_SECONDS = 5.0
"""Pace: the seconds between two checks of deliveries."""

HEARTBEATS_SECONDS = 35.0
"""Pace: how long a heartbeat counts: three intervals of a client, and a moment."""

_Key: TypeAlias = tuple[str, str, int]
"""Group, topic, queue id."""

_Told: TypeAlias = tuple[_Key, int, int]
"""A delivery: queue, offset and attempt."""


_Ends: TypeAlias = dict[_Told, float]
"""When the renewals of a delivery end."""


class Renewals:
    """Renews the deliveries of one broker, while it leads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        renewal: AutoRenewal,
        members: Callable[[str], Iterable[str]],
    ) -> None:
        """``members`` gives the ids of a group's clients with a stream."""
        self._loop = loop
        self._renewal = renewal
        self._members = members
        self._heard: dict[tuple[str, str], float] = {}
        """By group and client: the time until which its heartbeat counts."""
        self._ends: _Ends = {}
        self._given: set[_Told] = set()
        self._given_earlier: set[_Told] = set()
        """Deliveries that this leader has answered in this minute, and in the one before. Later
        they have been renewed, or are over. With very many deliveries the minute is shorter."""
        self._minute_ends = 0.0
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """The number of renewed deliveries."""
        return len(self._ends)

    def start(self) -> None:
        """Begins the renewals: this node leads."""
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        """Ends the renewals: another leader continues them."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._ends.clear()
        self._heard.clear()
        self._given.clear()
        self._given_earlier.clear()

    def heard(self, group: str, client_id: str) -> None:
        """A heartbeat of a client without a stream."""
        now = self._loop.time()
        if len(self._heard) >= GRPC.streams_max and (group, client_id) not in self._heard:
            self._heard = {key: until for key, until in self._heard.items() if until > now}
        if len(self._heard) < GRPC.streams_max or (group, client_id) in self._heard:
            self._heard[group, client_id] = now + HEARTBEATS_SECONDS

    def given(self, group: str, messages: Sequence[PoppedMessage]) -> None:
        """An open call is answered with these messages."""
        if len(self._given) >= STATE.pop_deliveries_max:  # most of them are acknowledged by now
            self._next_minute()
        self._given.update(
            ((group, each.topic, each.queue), each.offset, each.delivery_number)
            for each in messages
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
                if group not in whole:  # once for each check: there may be many queues and clients
                    whole.add(group)
                    working[group].update(map(client_hash, self._members(group)))
                if working[group]:
                    with suppress(*ANSWERED):  # that queue is checked again
                        await self._renew(key, working[group], ends)
                await asyncio.sleep(0)
            self._ends = ends

    async def _renew(self, key: _Key, working: set[int], ends: _Ends) -> None:
        now, due_ms = self._loop.time(), GRPC.renewed_seconds * 500
        due: list[Renewable] = []
        for each in self._renewal.deliveries(key, working):
            told = (key, each.offset, each.delivery.attempt)
            is_marked = was_answered(each.delivery.nonce)
            if not (is_marked or self._was_given(told)):
                continue
            end = self._ends.get(told)
            if end is None:
                age = GRPC.renewed_seconds - each.left_ms / 1000
                end = now - age + GRPC.renewed_seconds_max
            ends[told] = end
            if now < end and (each.left_ms <= due_ms or not is_marked):
                due.append(each)
        await self._renewal.renew(key, due, int(GRPC.renewed_seconds * 1000))

    def _was_given(self, told: _Told) -> bool:
        return told in self._given or told in self._given_earlier

    def _heard_of(self) -> defaultdict[str, set[int]]:
        """The clients whose heartbeats count, by group."""
        now = self._loop.time()
        heard: defaultdict[str, set[int]] = defaultdict(set)
        for (group, client), until in self._heard.items():
            if until > now:
                heard[group].add(client_hash(client))
        return heard
