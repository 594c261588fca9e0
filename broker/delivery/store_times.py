"""Looks up the store times of many messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from broker.delivery.message_lookup import MessageLookup
from store.errors import StoreError

Place: TypeAlias = tuple[str, int, int]
"""Topic, queue id, offset."""

PLACES_PER_TURN = 64
"""Look-ups in one turn of the event loop: a few milliseconds of work."""


def store_times(
    loop: asyncio.AbstractEventLoop,
    lookup: MessageLookup,
    places: Sequence[Place],
    done: Callable[[dict[Place, int]], None],
) -> None:
    """Calls ``done`` with the store time in ms of each place. It is 0, as in RocketMQ, if the
    message has expired or its record cannot be read here."""
    wanted = list(dict.fromkeys(places))
    found: dict[Place, int] = {}

    def looked_up(place: Place, timestamp_ms: int, error: StoreError | None) -> None:
        found[place] = max(timestamp_ms, 0) if error is None else 0
        if len(found) == len(wanted):
            done(found)
        elif len(found) % PLACES_PER_TURN == 0:  # all of this turn are found
            loop.call_soon(look)

    def look() -> None:
        for place in wanted[len(found) : len(found) + PLACES_PER_TURN]:
            lookup.store_time(*place, partial(looked_up, place))

    if not wanted:
        done(found)
    look()
