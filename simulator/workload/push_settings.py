"""Settings of consumers like RocketMQ's Java push consumer.

Times are shorter than Java's: seconds stand for tens of seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

from simulator.workload.push_listener import PushListener

REBALANCE_SECONDS = 2.0
PERSIST_SECONDS = 1.0
BELIEF_SECONDS = 6.0
"""How long a lock lasts without a renewal; the broker's lives ten times as long. Java's clients say
30 s, and 60 s is the broker's."""

ROUTES_SECONDS = 3.0
"""The pause between two looks at the routes if nothing has failed (Java's clients: 30 s). A deposed
leader answers pulls, and takes no commit."""

REBASE_SECONDS = 0.5
WAITING_MAX = 64
RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class PushSettings:
    """The settings of a member of a group. ``topics``: the wanted tags of each, none for all."""

    group: str
    topics: Mapping[str, Collection[str]]
    listener: PushListener
    rng: Random
    in_order: bool
