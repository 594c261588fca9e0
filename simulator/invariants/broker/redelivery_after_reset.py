"""After an offset reset (code 222) a group gets all from there on again, if its leader stays.

A leader's memory of it ends with its office, as in RocketMQ: then an operator asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.workload.history import Listener, Place
from store.message.record import MessageRecord


class RedeliveredAfterReset(Listener):
    """The messages of a group from the moment of the reset on. ``is_wanted``: whether the group's
    filter selects the message at a place in the log."""

    def __init__(self, is_wanted: Callable[[Place], bool]) -> None:
        self._is_wanted = is_wanted
        self._due: dict[Place, None] = {}

    def begin(self, ends: Mapping[tuple[str, int], int]) -> None:
        """The group is about to be moved back in these queues."""
        places = ((*queue, offset) for queue, end in ends.items() for offset in range(end))
        self._due = {place: None for place in places if self._is_wanted(place)}

    def delivered(self, _consumer: str, place: Place, _record: MessageRecord) -> None:
        """See :class:`~simulator.workload.history.Listener`."""
        self._due.pop(place, None)

    def is_complete(self, moved: Mapping[tuple[str, int], int]) -> bool:
        """Whether all messages from the new offsets on have come."""
        return all(offset < moved[topic, queue_id] for topic, queue_id, offset in self._due)
