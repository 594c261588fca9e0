"""Whether the replicated state has room for more offsets of groups (``STATE.offsets_max``).

Whatever writes the first offset of a group in a queue asks here. A state from before the limit may
exceed it: its offsets stay and may be changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import QuotaExceededError
from broker.group_commit.batcher import Batcher
from broker.limits import STATE


def check_offset_quota(batcher: Batcher, group: str, topic: str, queue_ids: Sequence[int]) -> None:
    """Raises :class:`~broker.errors.QuotaExceededError` if there are
    :func:`queues_without_room`."""
    new = queues_without_room(batcher, group, topic, queue_ids)
    if new:
        queues = f"queue {new[0]}" if len(new) == 1 else f"{len(new)} queues"
        raise QuotaExceededError(
            f"no offset is kept for {queues} of {topic}: there are {batcher.offset_count()} "
            f"offsets of groups, at most {STATE.offsets_max} are allowed"
        )


def queues_without_room(
    batcher: Batcher, group: str, topic: str, queue_ids: Sequence[int]
) -> Sequence[int]:
    """The queues in which the group has no offset yet, if there is no room for all of these."""
    offsets = batcher.offset_count()
    if offsets + len(queue_ids) <= STATE.offsets_max:
        return ()
    new = [each for each in queue_ids if batcher.offset(group, topic, each) is None]
    return new if offsets + len(new) > STATE.offsets_max else ()
