"""The lag of the event loop."""

from __future__ import annotations

import asyncio

from broker.metrics.event_loop_lag import INTERVAL_SECONDS, EventLoopLag
from tests.support.virtual_network import NetworkedLoop


async def test_a_stall_counts_for_as_long_as_a_timer_had_to_wait(loop: NetworkedLoop) -> None:
    stalled = 0.0
    lag = EventLoopLag(loop, lambda: loop.time() + stalled)
    lag.start()
    await asyncio.sleep(10 * INTERVAL_SECONDS + 0.01)
    assert lag.seconds.count == 10
    assert lag.seconds.sum < 1e-6
    stalled = 0.5
    await asyncio.sleep(INTERVAL_SECONDS)
    assert (lag.seconds.count, round(lag.seconds.sum, 6)) == (11, 0.5)
    lag.stop()
    await asyncio.sleep(1)
    assert lag.seconds.count == 11
