"""More messages than a broker group answers wait in line."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.config import ProducerConfig
from broker.client.errors import ClosedError, DeadlineError
from broker.client.message import Message
from broker.client.producer import broker_group_line
from broker.remoting.protocol.codes import RequestCode
from tests.broker.client.producer.producers import TOPIC, queue, start, stop
from tests.support.virtual_network import NetworkedLoop

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_group_line, "IN_FLIGHT_MAX", 3)
    monkeypatch.setattr(broker_group_line, "RETRIES_AT_ONCE", 2)


async def test_so_many_are_in_progress_and_the_rest_follow_in_order(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.stalled = []
    bodies = [b"%d" % number for number in range(10)]
    sending = [producer.send_nowait(Message(TOPIC, body), queue(0)) for body in bodies]
    await asyncio.sleep(0.5)
    assert broker.count(SEND) == 1 + 3
    broker.go_on()
    await asyncio.gather(*sending)
    assert broker.group.bodies(TOPIC, 0) == [b"first", *bodies]
    await stop(cluster, producer)


async def test_what_waited_when_the_leader_fell_silent_is_stored_once(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.silent = True  # messages are stored without an answer
    bodies = [b"%d" % number for number in range(10)]
    sending = [producer.send_nowait(Message(TOPIC, body), queue(0)) for body in bodies]
    await asyncio.sleep(0.2)
    broker.silent = False
    await cluster.fail_over(broker)
    await asyncio.gather(*sending)
    stored = broker.group.bodies(TOPIC, 0)
    assert sorted(stored) == sorted([b"first", *bodies])
    await stop(cluster, producer)


async def test_so_many_retries_are_in_progress(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    cluster.leaderless.append("broker-a")
    await broker.kill()
    sending = [producer.send_nowait(Message(TOPIC, b"x"), queue(0)) for _ in range(10)]
    await asyncio.sleep(1)
    broker.stalled = []
    broker.requests.clear()
    cluster.leaderless.clear()
    await broker.start()
    await asyncio.sleep(1)
    assert broker.count(SEND) + broker.count(RequestCode.QUERY_CONSUMER_OFFSET) <= 2
    broker.go_on()
    await asyncio.gather(*sending)
    await stop(cluster, producer)


async def test_new_messages_wait_until_all_retries_have_had_their_turn(
    loop: NetworkedLoop,
) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    cluster.leaderless.append("broker-a")
    await broker.kill()
    asking = producer.send_nowait(Message(TOPIC, b"asking"), queue(0))
    await asyncio.sleep(1)  # from now on nobody tries: the group has no leader
    retried = [b"%d" % number for number in range(10)]
    sending = [asking, *(producer.send_nowait(Message(TOPIC, body), queue(0)) for body in retried)]
    await asyncio.sleep(1)
    broker.stalled = []
    cluster.leaderless.clear()
    await broker.start()
    await asyncio.sleep(1)
    sending.append(producer.send_nowait(Message(TOPIC, b"new"), queue(0)))
    await asyncio.sleep(0.1)
    broker.go_on()
    await asyncio.gather(*sending)
    stored = broker.group.bodies(TOPIC, 0)
    assert sorted(stored) == sorted([b"first", b"asking", *retried, b"new"])
    # The last turns may still be in progress, but nobody waits for one.
    assert b"new" in stored[-broker_group_line.RETRIES_AT_ONCE :]
    await stop(cluster, producer)


async def test_a_leader_that_refuses_is_not_asked_by_all_that_wait(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.leading = False
    broker.requests.clear()
    sending = [producer.send_nowait(Message(TOPIC, b"x"), queue(0)) for _ in range(40)]
    await asyncio.sleep(broker_group_line.LOOK_SECONDS / 2)
    keys = {request.ext["i"] for request in broker.requests if request.code == SEND}
    assert len(keys) == broker_group_line.IN_FLIGHT_MAX
    broker.leading = True
    await asyncio.gather(*sending)
    assert len(broker.group.bodies(TOPIC, 0)) == 41
    await stop(cluster, producer)


async def test_who_waits_in_line_fails_at_its_deadline(loop: NetworkedLoop) -> None:
    config = ProducerConfig(deadline_seconds=5.0)
    cluster, (broker,), producer = await start(loop, config=config)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.mute = True
    began = loop.time()
    sending = [producer.send_nowait(Message(TOPIC, b"x"), queue(0)) for _ in range(10)]
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    assert loop.time() - began <= 5.0 + 2 * broker_group_line.LOOK_SECONDS
    assert all(isinstance(each, DeadlineError) for each in outcomes), outcomes
    await stop(cluster, producer)


async def test_who_waits_in_line_fails_when_the_producer_closes(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.mute = True
    sending = [producer.send_nowait(Message(TOPIC, b"x"), queue(0)) for _ in range(10)]
    await asyncio.sleep(0.1)
    await producer.close()
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    assert all(isinstance(each, ClosedError) for each in outcomes), outcomes
    await cluster.close()


async def test_who_was_cancelled_in_line_is_not_sent(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.stalled = []
    sending = [producer.send_nowait(Message(TOPIC, b"%d" % at), queue(0)) for at in range(6)]
    await asyncio.sleep(0.1)
    sending[4].cancel()
    broker.go_on()
    await asyncio.gather(*sending[:4], sending[5])
    assert broker.group.bodies(TOPIC, 0) == [b"first", b"0", b"1", b"2", b"3", b"5"]
    await stop(cluster, producer)


async def test_who_waits_in_line_waits_for_the_next_leader(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"), queue(0))
    broker.mute = True
    bodies = [b"%d" % number for number in range(10)]
    sending = [producer.send_nowait(Message(TOPIC, body), queue(0)) for body in bodies]
    await asyncio.sleep(0.1)
    cluster.leaderless.append("broker-a")
    await broker.kill()
    await asyncio.sleep(5)
    assert broker.count(SEND) == 1 + 3  # nobody else has tried
    broker.mute = False
    cluster.leaderless.clear()
    await broker.start()
    back_at = loop.time()
    await asyncio.gather(*sending)
    assert loop.time() - back_at < 2
    assert sorted(broker.group.bodies(TOPIC, 0)) == sorted([b"first", *bodies])
    await stop(cluster, producer)


async def test_a_group_that_lost_its_leader_keeps_nothing_from_another(
    loop: NetworkedLoop,
) -> None:
    cluster, (first, second), producer = await start(loop, groups=2)
    await producer.send(Message(TOPIC, b"first"))
    first.mute = True
    sending = [producer.send_nowait(Message(TOPIC, b"x")) for _ in range(40)]
    await asyncio.sleep(0.2)
    cluster.leaderless.append("broker-a")
    await first.kill()
    # Those that may be stored in the first group are not sent to the second.
    done, waiting = await asyncio.wait(sending, timeout=10)
    assert len(done) >= 40 - broker_group_line.IN_FLIGHT_MAX, len(waiting)
    assert second.count(SEND) >= 37
    first.mute = False
    cluster.leaderless.clear()
    await first.start()
    await asyncio.gather(*waiting)
    await stop(cluster, producer)
