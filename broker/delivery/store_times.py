"""Looks up the store times of many messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from broker.delivery.message_lookup import MessageLookup
from store.errors import StoreError

Place: TypeAlias = tuple[str, int, int]
"""Topic, queue id, offset."""


def store_times(
    lookup: MessageLookup, places: Sequence[Place], done: Callable[[dict[Place, int]], None]
) -> None:
    """Calls ``done`` with the store time in ms of each place. It is 0, as in RocketMQ, if the
    message has expired or its record cannot be read here."""
    found: dict[Place, int] = {}
    missing = len(set(places))

    def looked_up(place: Place, timestamp_ms: int, error: StoreError | None) -> None:
        nonlocal missing
        found[place] = max(timestamp_ms, 0) if error is None else 0
        missing -= 1
        if missing == 0:
            done(found)

    if not places:
        done(found)
    for place in dict.fromkeys(places):
        lookup.store_time(*place, partial(looked_up, place))
