"""Broker names without a registered process, for operators.

Clients do not see them. They are only in memory: a restarted NameServer has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.limits import NAMESERVER

REMEMBERED_MS = 86_400_000
"""A broker name is dropped after a day."""


@dataclass(frozen=True, slots=True)
class _Gone:
    cluster: str
    members: dict[str, int]
    since: int


class DepartedBrokers:
    """The departed brokers. ``clock`` gives milliseconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._gone: dict[str, _Gone] = {}

    def left(self, name: str, cluster: str, members: Mapping[str, int]) -> None:
        """The last process of the name is gone. ``members``: broker ids by address, without removed
        members."""
        self._gone.pop(name, None)
        self._gone[name] = _Gone(cluster, dict(members), self._clock())
        while len(self._gone) > NAMESERVER.departed_brokers_max:
            del self._gone[next(iter(self._gone))]

    def returned(self, name: str) -> None:
        """The name is registered again."""
        self._gone.pop(name, None)

    def expire(self) -> None:
        """Drops names that have been gone for too long."""
        oldest = self._clock() - REMEMBERED_MS
        self._gone = {name: gone for name, gone in self._gone.items() if gone.since >= oldest}

    def as_json(self) -> dict[str, Any]:
        """The departed brokers by name; an address that never followed has the id 0."""
        now = self._clock()
        return {
            name: {
                "cluster": gone.cluster,
                "goneMillis": now - gone.since,
                "members": dict(sorted(gone.members.items())),
            }
            for name, gone in self._gone.items()
        }
