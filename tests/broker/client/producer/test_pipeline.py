"""Streams: batches, backpressure, and order in each queue through failures."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from random import Random

import pytest

from broker.client.config import ProducerConfig
from broker.client.errors import ClientError, DeadlineError, IllegalMessageError, RefusedError
from broker.client.message import Message, SendResult
from broker.client.producer.pipeline import BACKLOG_BYTES_MAX, Pipeline
from broker.client.producer.producer import Producer
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.message.tags_code import tags_code
from tests.broker.client.fake_cluster import NAME_SERVER, NOW_MS, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop, turns

TOPIC = "T"


class Stream:
    """A cluster, a pipeline into it, and what was acknowledged."""

    def __init__(self, loop: NetworkedLoop, queues: int) -> None:
        self.cluster = Cluster(loop)
        self.cluster.topics[TOPIC] = queues
        self.stored: list[bytes] = []
        self.results: list[SendResult] = []
        self.broker: Broker
        self.producer: Producer
        self.pipeline: Pipeline

    async def start(self, deadline_seconds: float = 30.0, **options: int | bool) -> Stream:
        (self.broker,) = await self.cluster.start()
        config = ProducerConfig(deadline_seconds=deadline_seconds)
        self.producer = Producer(NAME_SERVER, config, wall_clock=lambda: NOW_MS, rng=Random(1))
        queues = await self.producer.queues(TOPIC)
        self.pipeline = Pipeline(self.producer, queues, self._stored, **options)  # type: ignore[arg-type]  # options by name
        return self

    def _stored(self, result: SendResult, messages: Sequence[Message]) -> None:
        self.results.append(result)
        self.stored += [bytes(message.body) for message in messages]

    async def close(self) -> None:
        await self.producer.close()
        await self.cluster.close()

    def bodies(self) -> dict[int, list[bytes]]:
        queues = range(self.cluster.topics[TOPIC])
        return {queue_id: self.broker.group.bodies(TOPIC, queue_id) for queue_id in queues}


def numbered(first: int, end: int) -> list[Message]:
    return [Message(TOPIC, b"%06d" % number) for number in range(first, end)]


async def test_everything_is_stored_once_and_in_order_in_each_queue(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 4).start(batch_messages=7)
    for first in range(0, 1000, 50):
        await stream.pipeline.put(numbered(first, first + 50))
    await stream.pipeline.drain()
    bodies = stream.bodies()
    assert sorted(body for queue in bodies.values() for body in queue) == [
        b"%06d" % number for number in range(1000)
    ]
    assert all(queue == sorted(queue) and queue for queue in bodies.values())
    assert sorted(stream.stored) == [b"%06d" % number for number in range(1000)]
    await stream.close()


async def test_what_is_there_goes_together_and_at_once(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 4).start()
    await stream.pipeline.put(numbered(0, 3))
    await stream.pipeline.put(numbered(3, 4))
    await stream.pipeline.drain()
    assert [result.message_count for result in stream.results] == [3, 1]
    assert stream.broker.count(RequestCode.SEND_BATCH_MESSAGE) == 1
    assert stream.broker.count(RequestCode.SEND_MESSAGE_V2) == 1
    await stream.close()


async def test_order_survives_leaders_that_die_with_batches_under_way(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 3).start(batch_messages=5)

    async def feed() -> None:
        for first in range(0, 600, 10):
            await stream.pipeline.put(numbered(first, first + 10))
            await asyncio.sleep(0.01)

    async def disturb() -> None:
        leader = stream.broker
        for round_number in range(4):
            await asyncio.sleep(0.1)
            leader.lose_answers = round_number % 2
            leader.mute = round_number % 2 == 0
            await asyncio.sleep(0.03)
            leader = await stream.cluster.fail_over(leader)

    await asyncio.gather(feed(), disturb())
    await stream.pipeline.drain()
    bodies = stream.bodies()
    assert sorted(body for queue in bodies.values() for body in queue) == [
        b"%06d" % number for number in range(600)
    ]
    assert all(queue == sorted(queue) for queue in bodies.values())
    await stream.close()


async def test_messages_of_one_key_stay_in_order_in_one_queue(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 4).start(ordered_by_key=True, batch_messages=5)
    rng = Random(7)
    keys = [f"key-{number}" for number in range(9)]
    sent: dict[str, list[bytes]] = {key: [] for key in keys}
    for number in range(500):
        key = rng.choice(keys)
        body = f"{key}:{number}".encode()
        sent[key].append(body)
        await stream.pipeline.put_ordered(Message(TOPIC, body), key)
        if number == 250:
            await turns()
            stream.broker.lose_answers = 1
    await stream.pipeline.drain()
    bodies = stream.bodies()
    for key, expected in sent.items():
        queue = bodies[abs(tags_code(key)) % 4]
        assert [body for body in queue if body.startswith(f"{key}:".encode())] == expected
    assert sum(map(len, bodies.values())) == 500
    await stream.close()


async def test_a_queue_has_one_request_under_way(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start(batch_messages=1)
    await stream.pipeline.put(numbered(0, 1))
    await stream.pipeline.drain()
    stream.broker.requests.clear()
    stream.broker.mute = True
    await stream.pipeline.put(numbered(1, 10))
    await turns(20)
    assert sorted(str(request.ext["e"]) for request in stream.broker.requests) == ["0", "1"]
    await stream.close()


async def test_putting_waits_while_too_much_waits(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start()
    stream.broker.mute = True
    big = Message(TOPIC, bytes(BACKLOG_BYTES_MAX // 8))
    for _ in range(8):
        await stream.pipeline.put([big])
    blocked = asyncio.ensure_future(stream.pipeline.put([big]))
    await turns(50)
    assert not blocked.done()
    stream.broker.mute = False
    await blocked
    await stream.pipeline.drain()
    assert len(stream.stored) == 9
    await stream.close()


async def test_who_gives_up_waiting_takes_nothing_from_others(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 1).start()
    stream.broker.mute = True
    big = Message(TOPIC, bytes(BACKLOG_BYTES_MAX // 8))
    for _ in range(8):
        await stream.pipeline.put([big])
    waiting = [
        asyncio.ensure_future(stream.pipeline.put(numbered(0, 1))),
        asyncio.ensure_future(stream.pipeline.drain()),
        asyncio.ensure_future(stream.pipeline.put(numbered(1, 2))),
        asyncio.ensure_future(stream.pipeline.drain()),
    ]
    await turns()
    for given_up in waiting[:2]:
        given_up.cancel()
    stream.broker.mute = False
    await asyncio.wait(waiting, timeout=60)
    assert [each.cancelled() for each in waiting] == [True, True, False, False]
    await asyncio.gather(*waiting[2:])
    assert stream.stored == [big.body] * 8 + [b"000001"]
    await stream.close()


async def test_delayed_messages_go_one_by_one(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start()
    await stream.pipeline.put([Message(TOPIC, b"x", delay_level=1)] * 5)
    await stream.pipeline.drain()
    assert stream.broker.count(RequestCode.SEND_MESSAGE_V2) == 5
    await stream.close()


async def test_a_batch_keeps_its_bounds(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 1).start(batch_messages=100, batch_bytes=1000)
    await stream.pipeline.put([Message(TOPIC, bytes(300))] * 10)
    await stream.pipeline.drain()
    assert [result.message_count for result in stream.results] == [2] * 5
    await stream.close()


async def test_a_refused_message_stops_the_stream_and_is_raised(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 1).start(batch_messages=1)
    await stream.pipeline.put(numbered(0, 2))
    await stream.pipeline.drain()
    stream.broker.refusals.append((ResponseCode.MESSAGE_ILLEGAL, "no"))
    await stream.pipeline.put(numbered(2, 9))
    with pytest.raises(RefusedError):
        await stream.pipeline.drain()
    with pytest.raises(RefusedError):
        await stream.pipeline.put(numbered(9, 10))
    assert stream.stored == [b"000000", b"000001"]
    await stream.close()


async def test_who_cannot_be_told_of_acknowledgements_ends_the_stream(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start(batch_messages=1)

    def nobody_listens(result: SendResult, messages: Sequence[Message]) -> None:
        raise BrokenPipeError

    pipeline = Pipeline(stream.producer, await stream.producer.queues(TOPIC), nobody_listens)
    await pipeline.put(numbered(0, 5))
    with pytest.raises(BrokenPipeError):
        await pipeline.drain()
    await stream.close()


async def test_an_illegal_message_is_raised_too(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 1).start()
    await stream.pipeline.put([Message(TOPIC, bytes(5 * 1024 * 1024))])
    with pytest.raises(IllegalMessageError):
        await stream.pipeline.drain()
    await stream.close()


async def test_what_waits_behind_an_illegal_message_does_not_go_on(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start()
    await stream.pipeline.put([Message(TOPIC, bytes(5 * 1024 * 1024)), *numbered(0, 2)])
    with pytest.raises(IllegalMessageError):
        await stream.pipeline.drain()
    assert stream.broker.count(RequestCode.SEND_BATCH_MESSAGE) == 0
    await stream.close()


async def test_what_has_no_size_is_not_taken(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 1).start()
    sizeless = Message(TOPIC, None)  # type: ignore[arg-type]  # a caller's mistake
    with pytest.raises(TypeError):
        await stream.pipeline.put([*numbered(0, 1), sizeless])
    with pytest.raises(TypeError):
        await stream.pipeline.put_ordered(sizeless, "key")
    await stream.pipeline.put(numbered(1, 2))
    await stream.pipeline.drain()
    assert stream.stored == [b"000001"]
    await stream.close()


async def test_an_error_that_nobody_foresaw_is_raised_too(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start()
    odd = Message(TOPIC, b"x")
    odd.flag = 2**31  # which its constructor would not have taken
    ordered = Pipeline(
        stream.producer,
        await stream.producer.queues(TOPIC),
        lambda result, messages: None,
        ordered_by_key=True,
    )
    await stream.pipeline.put([odd, odd])
    for _ in range(2):
        await ordered.put_ordered(odd, "key")
    for pipeline in (stream.pipeline, ordered):
        with pytest.raises(struct.error):
            await asyncio.wait_for(pipeline.drain(), 60)
        with pytest.raises(struct.error):
            await pipeline.put(numbered(0, 1))
    await stream.close()


async def test_whatever_is_wrong_with_who_is_told_ends_the_stream(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start(batch_messages=1)

    def stumble(result: SendResult, messages: Sequence[Message]) -> None:
        raise ValueError("I/O operation on closed file.")

    queues = await stream.producer.queues(TOPIC)
    pipeline = Pipeline(stream.producer, queues, stumble)
    await pipeline.put(numbered(0, 5))
    with pytest.raises(ValueError, match="closed file"):
        await asyncio.wait_for(pipeline.drain(), 60)
    await stream.close()


async def test_a_message_of_another_topic_ends_the_stream(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start()
    stream.cluster.topics["U"] = 2
    queues = await stream.producer.queues(TOPIC)
    other = Message("U", b"x")
    for messages in ([other], [other, other], [*numbered(0, 2), other]):
        pipeline = Pipeline(stream.producer, queues, stream._stored)
        await pipeline.put(messages)
        with pytest.raises(IllegalMessageError, match=r"not of T and U|to a queue of T"):
            await pipeline.drain()
    assert (stream.stored, stream.broker.group.queues) == ([], {})
    await stream.close()


async def test_the_deadline_ends_a_stream_without_a_leader(loop: NetworkedLoop) -> None:
    stream = await Stream(loop, 2).start(deadline_seconds=3.0)
    await stream.broker.kill()
    await stream.pipeline.put(numbered(0, 2000))
    with pytest.raises(ClientError) as caught:
        await stream.pipeline.drain()
    assert isinstance(caught.value, DeadlineError)
    await stream.close()
