"""What a look at the deliveries of a group in a queue costs.

A step counter does not see it: the first item of a plain dict is searched in C, behind all that
were removed. So these tests compare times, of which the quickest of many count.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from timeit import repeat

from broker.state.pop_queues import PopQueue

MANY = 100_000


def received(messages: int) -> PopQueue:
    queue = PopQueue(0)
    queue.receive(messages, range(messages), 7, 60_000)
    return queue


def seconds(work: Callable[[], object]) -> float:
    return min(repeat(work, number=10, repeat=20))


def test_the_committed_offset_is_found_at_once_behind_any_number_of_acknowledgements() -> None:
    """Each acknowledgement asks for it. So the acknowledgements would be quadratic."""
    full, empty = received(MANY), received(MANY)
    empty.acknowledge(range(MANY - 1))
    assert (full.committed_offset, empty.committed_offset) == (0, MANY - 1)
    assert seconds(lambda: empty.committed_offset) < 30 * seconds(lambda: full.committed_offset)


def test_a_commit_looks_at_what_it_acknowledges_and_not_at_all_deliveries() -> None:
    def commits(queue: PopQueue) -> float:
        offsets = count(1)
        return seconds(lambda: queue.commit(next(offsets)))

    assert commits(received(MANY)) < 30 * commits(received(1000))
