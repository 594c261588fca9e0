"""The search for the message of a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.store.index.small_queues import SIZE, flush, queues_on, rows
from tests.store.small_logs import simulated
from tests.support.search_effort import searching


def slow_search(times: list[int], first: int, timestamp: int) -> int:
    """What RocketMQ 4.9 answers, told the long way. Offsets begin at ``first``."""
    if not times:
        return 0
    exact = [offset for offset, time in enumerate(times, first) if time == timestamp]
    if exact:
        return exact[0]
    later = [offset for offset, time in enumerate(times, first) if time > timestamp]
    if not later:
        return first + len(times) - 1
    if later[0] == first:
        return first
    before, after = times[later[0] - 1 - first], times[later[0] - first]
    return later[0] if after - timestamp < timestamp - before else later[0] - 1


@searching(300)
@given(
    st.lists(st.integers(0, 30), max_size=12).map(sorted),
    st.integers(0, 5),
    st.integers(-2, 32),
)
def test_the_search_by_time_agrees_with_looking_at_every_message(
    times: list[int], expired: int, timestamp: int
) -> None:
    queues = queues_on(simulated())
    queue = queues.get_or_create("orders", 0)
    queue.append(0, rows(0, len(times)))
    flush(queues)
    queue.first_offset = first = min(expired, len(times))

    def store_time(position: int, size: int) -> int:
        assert size == SIZE
        return times[(position - 1000) // 10]

    assert queue.search_time(timestamp, store_time) == slow_search(times[first:], first, timestamp)
