"""A leader that answers nothing, with open connections, is left as soon as another one leads."""

from __future__ import annotations

import asyncio

from broker.client.message import Message
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.producer.producers import TOPIC, queue, start, stop
from tests.support.virtual_network import NetworkedLoop


async def test_messages_go_to_the_new_leader_without_waiting_for_a_timeout(
    loop: NetworkedLoop,
) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    broker.mute = True
    sending = [producer.send_nowait(Message(TOPIC, b"two"), queue(0)) for _ in range(200)]
    await asyncio.sleep(0.5)
    broker.leading = False
    await cluster.add(broker.group)
    led_at = loop.time()
    await asyncio.gather(*sending)
    assert loop.time() - led_at < 0.2
    assert broker.group.bodies(TOPIC, 0) == [b"one"] + 200 * [b"two"]
    await stop(cluster, producer)


async def test_what_the_old_leader_had_stored_is_not_stored_twice(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.silent = True
    sending = producer.send_nowait(Message(TOPIC, b"one"), queue(0))
    await asyncio.sleep(0.5)
    assert not sending.done()
    broker.leading = False
    await cluster.add(broker.group)
    result = await sending
    assert result.queue_offset == 0
    assert broker.group.bodies(TOPIC, 0) == [b"one"]
    await stop(cluster, producer)


async def test_a_leader_that_is_slow_keeps_its_requests(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    broker.stalled = []
    sending = producer.send_nowait(Message(TOPIC, b"two"), queue(0))
    await asyncio.sleep(2.5)
    broker.go_on()
    await sending
    assert broker.group.bodies(TOPIC, 0) == [b"one", b"two"]
    assert len(cluster.lookups) < 25
    await stop(cluster, producer)


async def test_a_client_that_waits_for_nothing_looks_at_nothing(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    await asyncio.sleep(1)
    cluster.lookups.clear()
    broker.leading = False
    await cluster.add(broker.group)
    await asyncio.sleep(10)
    assert cluster.lookups == []
    await stop(cluster, producer)


async def test_a_deposed_leader_that_answers_keeps_its_connection(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    broker.stalled = []
    sending = producer.send_nowait(Message(TOPIC, b"two"), queue(0))
    await asyncio.sleep(0.05)
    new = await cluster.add(broker.group)
    broker.go_on()
    await sending
    assert new.requests == []
    await stop(cluster, producer)


async def test_a_new_leader_that_does_not_answer_yet_is_asked_at_a_pace(
    loop: NetworkedLoop,
) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.silent = True
    sending = producer.send_nowait(Message(TOPIC, b"one"), queue(0))
    await asyncio.sleep(0.5)
    broker.leading = False
    new = await cluster.add(broker.group)

    def not_yet(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, "does not serve yet")

    new.overrides[RequestCode.QUERY_MESSAGE] = not_yet
    await asyncio.sleep(2)
    assert 10 < new.count(RequestCode.QUERY_MESSAGE) < 100
    new.overrides.clear()
    await sending
    assert broker.group.bodies(TOPIC, 0) == [b"one"]
    await stop(cluster, producer)
