"""Queue locks, for queues whose messages must be consumed in order.

A member of a group locks a queue at the leader before it consumes in order, and renews the lock
every 20 s (``RebalanceLockManager``). Only the leader has the locks, as in RocketMQ. A new leader
has none, and grants each queue to the first client that asks. A client trusts its lock for at most
30 s, and renews it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.limits import CLIENTS
from broker.topics_and_groups import TopicConfig

LOCK_SECONDS = 60.0
"""The lifetime of a lock in seconds, unless it is renewed; RocketMQ's
``rebalanceLockMaxLiveTime``."""


FORGET_SECONDS = 1.0
"""The seconds between two searches for expired locks."""


class LockedQueue(NamedTuple):
    """A queue of this broker group."""

    topic: str
    queue_id: int


class _Lock(NamedTuple):
    client_id: str
    until: float


class QueueLocks:
    """The locks of all groups."""

    def __init__(
        self, now: Callable[[], float], topic_of: Callable[[str], TopicConfig | None]
    ) -> None:
        """``now`` gives the seconds of a monotonic clock."""
        self._now = now
        self._topic_of = topic_of
        self._groups: dict[str, dict[LockedQueue, _Lock]] = {}
        self._count = 0
        self._forget_at = 0.0

    def lock(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> list[LockedQueue]:
        """Locks free queues, and renews the client's locks. Returns the queues that the client
        holds.

        Only existing queues are locked. If there are too many locks, no further queues are locked.
        """
        now = self._now()
        if now >= self._forget_at:
            self._forget_at = now + FORGET_SECONDS
            self._forget_expired(now)
        held = self._groups.setdefault(group, {})
        granted: list[LockedQueue] = []
        for queue in queues:
            topic = self._topic_of(queue.topic)
            if topic is None or queue.queue_id >= topic.queues:
                continue
            lock = held.get(queue)
            if lock is None and self._count >= CLIENTS.locks_max:
                continue
            if lock is None or lock.client_id == client_id or lock.until <= now:
                self._count += lock is None
                held[queue] = _Lock(client_id, now + LOCK_SECONDS)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> None:
        """Releases the client's locks of these queues."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self._count -= 1

    def clear(self) -> None:
        """This node does not lead any more."""
        self._groups.clear()
        self._count = 0

    def _forget_expired(self, now: float) -> None:
        for group, held in list(self._groups.items()):
            for queue in [queue for queue, lock in held.items() if lock.until <= now]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._groups[group]
