"""A consumer that is closed is no member any more, however the close ends."""

from __future__ import annotations

import asyncio

import pytest

from broker.remoting.protocol.codes import RequestCode
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.support.virtual_network import NetworkedLoop


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_close_that_is_cancelled_leaves_no_member(
    loop: NetworkedLoop, seconds: float
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"x")
    consumer = new_consumer()
    await consumer.start()
    await take(consumer, 1)
    broker.leading = False
    cluster.leaderless.append("broker-a")
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(seconds)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    broker.leading = True
    cluster.leaderless.clear()
    await asyncio.sleep(1)
    assert not broker.members
    seen = len(broker.requests)
    await asyncio.sleep(100)
    assert len(broker.requests) == seen
    assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == (seconds > 0)
    await consumer.close()
    await cluster.close()
