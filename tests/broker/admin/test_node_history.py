"""The samples for charts: bounded, one every ten seconds, differences of counters."""

from __future__ import annotations

import asyncio

from broker.admin.node_history import NodeHistory
from broker.metrics.history import STEP_SECONDS, History, HistorySample
from tests.broker.single_broker import SingleBroker


def sample(number: int) -> HistorySample:
    return HistorySample(number, number, 0, 0, -1, -1)


def test_the_ring_keeps_the_newest() -> None:
    history = History(samples_max=3)
    assert list(history.since(0)) == []
    for number in range(1, 6):
        history.add(sample(number))
    assert [each.time_ms for each in history.since(0)] == [3, 4, 5]
    assert [each.time_ms for each in history.since(4)] == [4, 5]
    assert len(history) == 3


async def test_a_sample_tells_what_was_done_since_the_last(broker: SingleBroker) -> None:
    await broker.create_topic("orders", 1)
    history = NodeHistory(broker.broker.context)
    history.start()
    for number in range(4):
        await broker.send("orders", 0, b"%d" % number)
    await asyncio.sleep(STEP_SECONDS + 0.5)
    await broker.send("orders", 0, b"late")
    await asyncio.sleep(STEP_SECONDS)
    history.stop()
    await asyncio.sleep(3 * STEP_SECONDS)
    first, second = history.history.since(0)
    assert (first.stored, second.stored) == (4, 1)
    assert first.log_bytes > second.log_bytes > 0
    assert first.lag == 0
