"""Groups that are moved while they consume: what the leader remembers until they have followed.

The new offsets are committed like any others. The members are told (request 220), but not every
client understands that, and one that does may commit what it had consumed before in between. So for
each queue that is moved the leader ignores commits, and answers the next pull of the group that
does not begin there with "offset moved" (21), as RocketMQ 5 does. This is the leader's alone, as
in RocketMQ: after a failover in that moment the members' own commits count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

RESET_SECONDS = 60.0
"""For so long a group may take to follow; Java's clients need ten seconds, others a pull."""


class _Reset(NamedTuple):
    offset: int
    until: float
    is_committed: bool


class PendingResets:
    """False while there are none. ``now`` gives seconds of a clock that only goes forward."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._resets: dict[tuple[str, str, int], _Reset] = {}
        self._forget_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._resets)

    def begin(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The command that moves the group to ``offset`` is on its way: what members commit from
        now on would come behind it in the log, and undo it."""
        self._note(group, topic, queue_id, offset, is_committed=False)

    def add(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group is moved to ``offset``."""
        self._note(group, topic, queue_id, offset, is_committed=True)

    def _note(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_committed: bool
    ) -> None:
        now = self._now()
        if now >= self._forget_at:  # seldom: a topic may have thousands of queues
            self._forget_at = now + RESET_SECONDS
            self._resets = {key: reset for key, reset in self._resets.items() if reset.until > now}
        self._resets[group, topic, queue_id] = _Reset(offset, now + RESET_SECONDS, is_committed)

    def give_up(self, group: str, topic: str, queue_id: int) -> None:
        """The group is not moved after all."""
        self._resets.pop((group, topic, queue_id), None)

    def is_pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group has yet to begin anew in this queue."""
        reset = self._resets.get((group, topic, queue_id))
        return reset is not None and reset.until > self._now()

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group has to go on in this queue, if it was moved; said only once."""
        key = (group, topic, queue_id)
        reset = self._resets.get(key)
        if reset is None or not reset.is_committed:
            return None
        del self._resets[key]
        return reset.offset if reset.until > self._now() else None

    def clear(self) -> None:
        """This node does not lead any more."""
        self._resets.clear()
