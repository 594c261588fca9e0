"""ReceiveMessage: how much one answer holds, for which tags, and for a client that goes."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from google.protobuf.duration_pb2 import Duration

from broker.errors import NoAnswerError
from broker.filter.subscription import tag_codes
from broker.grpc import sent_messages
from broker.grpc.call import Call
from broker.grpc.consume_calls import ANSWER_SECONDS
from broker.grpc.forwarding import GrpcForwarder
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, FilterType
from broker.limits import CONSUME, GRPC
from broker.pop.pop_request import PopRequest, PopResult
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import FRAME_BODY_SIZE_MAX
from dledger.errors import BusyError, NotLeaderError, NotServingError
from store.message.compressed_body import SYS_FLAG_COMPRESSED
from tests.broker.grpc.single_service import CLIENT, METADATA, SingleService, message
from tests.broker.grpc.test_calls import ORDERS, READERS, received, receiving
from tests.broker.single_broker import ADDRESS
from tests.support.virtual_network import NetworkedLoop

MIB = 1 << 20


async def send_compressed(service: SingleService, size: int) -> bytes:
    """A body of so many zeros, as a client of RocketMQ 4 compresses it."""
    body = zlib.compress(bytes(size))
    answer = await service.broker.send("orders", 0, body, f=str(SYS_FLAG_COMPRESSED))
    assert answer.code == ResponseCode.SUCCESS
    return body


async def pulled(service: SingleService, offset: int, **changed: Any) -> tuple[list[bytes], int]:
    """The bodies that PullMessage gives, and the next offset."""
    queue = df.MessageQueue(topic=ORDERS, id=0)
    request = pb.PullMessageRequest(
        group=READERS, message_queue=queue, offset=offset, batch_size=32, **changed
    )
    answers = [
        pb.PullMessageResponse.FromString(each)
        for each in await service.raw("PullMessage", request.SerializeToString())
    ]
    bodies = [each.message.body for each in answers if each.HasField("message")]
    return bodies, answers[-1].next_offset


async def test_the_size_of_an_answer_is_that_of_decompressed_bodies(
    service: SingleService,
) -> None:
    await service.broker.create_topic("orders", queues=1)
    for _ in range(12):
        await send_compressed(service, MIB)
    counts: list[int] = []
    while sum(counts) < 12:
        code, found = await received(service)
        assert code == Code.OK
        counts.append(len(found))
        assert sum(len(each.body) for each in found) <= CONSUME.pop_bytes_max
        assert {each.system_properties.delivery_attempt for each in found} == {1}
    assert counts == [7, 5]


async def test_a_pull_counts_decompressed_bodies(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    for _ in range(12):
        await send_compressed(service, MIB)
    got: list[int] = []
    offset = 0
    while offset < 12:
        bodies, offset = await pulled(service, offset)
        got.append(len(bodies))
    assert got == [3, 3, 3, 3]


async def test_the_largest_decompressed_body_can_be_forwarded(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger one is given out as it is stored."""
    assert GRPC.inflated_size < FRAME_BODY_SIZE_MAX - (128 << 10)
    monkeypatch.setattr(sent_messages, "GRPC", GRPC._replace(inflated_size=1000))
    await service.broker.create_topic("orders", queues=1)
    await send_compressed(service, 1000)
    stored = await send_compressed(service, 1001)
    _code, found = await received(service)
    assert [each.body for each in found] == [bytes(1000), stored]


async def test_messages_of_another_tag_with_the_same_code_are_not_received(
    service: SingleService,
) -> None:
    """Apache's clients do not compare tags: RocketMQ's proxy does it for them."""
    assert tag_codes("Aa") == tag_codes("BB")
    await service.broker.create_topic("orders", queues=1)
    for tag in ("BB", "Aa", "BB"):
        await service.broker.send("orders", 0, tag.encode(), f"TAGS\x01{tag}\x02")
    wanted = df.FilterExpression(type=FilterType.TAG, expression="Aa || c")
    code, found = await received(service, filter_expression=wanted)
    assert code == Code.OK
    assert [each.body for each in found] == [b"Aa"]
    code, found = await received(service, filter_expression=wanted)
    assert (code, found) == (Code.MESSAGE_NOT_FOUND, [])


async def test_nor_are_they_pulled(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    for tag in ("BB", "Aa", "BB"):
        await service.broker.send("orders", 0, tag.encode(), f"TAGS\x01{tag}\x02")
    wanted = df.FilterExpression(type=FilterType.TAG, expression="Aa")
    bodies, next_offset = await pulled(service, 0, filter_expression=wanted)
    assert (bodies, next_offset) == ([b"Aa"], 3)
    assert await pulled(service, 2, filter_expression=wanted) == ([], 3)


@pytest.fixture
async def follower(loop: NetworkedLoop, service: SingleService) -> AsyncIterator[GrpcForwarder]:
    """The forwarder of another broker, whose leader the service's is."""
    service.broker.broker.serve_brokers(service.service.handlers)
    forwarder = GrpcForwarder(
        loop, "10.0.0.2:10911", lambda: ADDRESS, on_command=lambda _leader, _command: None
    )
    yield forwarder
    await forwarder.close()


def forwarded(
    follower: GrpcForwarder, *, seconds: float | None = 30.0, **changed: Any
) -> asyncio.Task[Any]:
    """A receive call of a client at the follower, which waits for 20 s. ``seconds``: its
    deadline."""
    long = {"long_polling_timeout": Duration(seconds=20)}
    body = receiving(**(long | changed)).SerializeToString()
    call = Call("ReceiveMessage", METADATA, CLIENT, seconds=seconds)
    return asyncio.ensure_future(follower.forward(call, body))


async def test_nothing_is_received_for_a_client_of_a_follower_that_is_gone(
    service: SingleService, follower: GrpcForwarder
) -> None:
    await service.broker.create_topic("orders", queues=1)
    gone, stays = forwarded(follower), forwarded(follower)
    await asyncio.sleep(1)
    assert len(service.context.pop.held) == 2
    gone.cancel()
    await asyncio.sleep(1)
    assert len(service.context.pop.held) == 1
    (connection,) = follower._client._connections.values()
    assert len(connection._pending.waiting) == 1
    await service.broker.send("orders", 0, b"x")
    answers = await stays
    assert len(answers) == 3
    assert service.context.machine.state.pop.delivery_count == 1


async def test_a_call_that_is_cancelled_at_once_leaves_nothing_behind(
    service: SingleService, follower: GrpcForwarder
) -> None:
    await service.broker.create_topic("orders", queues=1)
    kept = forwarded(follower)
    await asyncio.sleep(1)
    gone = forwarded(follower)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(1)
    (connection,) = follower._client._connections.values()
    assert len(connection._pending.waiting) == 1
    assert len(service.context.pop.held) == 1
    kept.cancel()


async def test_the_leader_answers_a_receive_without_a_deadline_while_the_follower_waits(
    service: SingleService, follower: GrpcForwarder
) -> None:
    await service.broker.create_topic("orders", queues=1)
    answers = await forwarded(follower, seconds=None)
    (status,) = [pb.ReceiveMessageResponse.FromString(each).status for each in answers]
    assert status.code == Code.MESSAGE_NOT_FOUND
    assert not service.context.pop.held
    waiting = forwarded(follower, seconds=None)
    await asyncio.sleep(1)
    await service.broker.send("orders", 0, b"x")
    assert len(await waiting) == 3


async def test_a_call_for_which_the_follower_waits_no_longer_ends_at_the_leader(
    service: SingleService, follower: GrpcForwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it received would be invisible, and nobody would have it."""
    ended = list[str]()

    async def receive(_request: object) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("cancelled")

    monkeypatch.setattr(service.context.pop, "receive", receive)
    with pytest.raises(NoAnswerError):
        await forwarded(follower, seconds=1.0)
    assert not ended
    await asyncio.sleep(0.1)
    assert ended == ["cancelled"]


@pytest.mark.parametrize("number", ["7", ""])
async def test_calls_are_told_apart_by_their_numbers(service: SingleService, number: str) -> None:
    """An earlier program does not number its calls. To cancel what has ended does nothing."""
    service.broker.broker.serve_brokers(service.service.handlers)
    await service.broker.create_topic("orders", queues=1)
    call = '{"method": "ReceiveMessage", "client": "10.0.0.9:1", "metadata": {}, "seconds": 3}'
    ext = {"call": call, "number": number}
    body = receiving().SerializeToString()
    asked = [
        asyncio.ensure_future(service.broker.ask(RequestCode.FORWARD_GRPC, ext, body))
        for _ in range(2)
    ]
    answers = await asyncio.gather(*asked)
    taken = ResponseCode.SYSTEM_ERROR if number else ResponseCode.SUCCESS
    assert [each.code for each in answers] == [ResponseCode.SUCCESS, taken]
    service.broker.client.push(ADDRESS, RequestCode.CANCEL_GRPC, {"number": number or "0"})
    again = await service.broker.ask(RequestCode.FORWARD_GRPC, ext, body)
    assert again.code == ResponseCode.SUCCESS


# --- the client's deadline


def receive_for_20_s() -> bytes:
    return receiving(long_polling_timeout=Duration(seconds=20)).SerializeToString()


async def test_who_waits_while_the_leader_changes_is_answered_within_its_deadline(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.broker.create_topic("orders", queues=1)
    loop, pop, begun = service.context.loop, service.context.pop, list[float]()
    receive, start = pop.receive, service.context.loop.time()

    async def at_first_no_leader(request: PopRequest) -> PopResult:
        begun.append(loop.time() - start)
        if len(begun) == 1:
            await asyncio.sleep(15)
            loop.call_later(0.2, service.service._leader_wait.leadership_changed)
            raise NotServingError
        return await receive(request)

    monkeypatch.setattr(pop, "receive", at_first_no_leader)
    call = Call("ReceiveMessage", METADATA, CLIENT, seconds=23.0)
    (answer,) = await service.service.dispatcher.serve(call, receive_for_20_s())
    status = pb.ReceiveMessageResponse.FromString(answer).status
    assert status.code == Code.MESSAGE_NOT_FOUND
    assert begun == pytest.approx([0, 15.2])
    assert loop.time() - start == pytest.approx(23 - ANSWER_SECONDS)


async def test_a_call_is_forwarded_again_with_what_is_left_of_its_time(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list[float | None]()

    async def receive(_request: PopRequest) -> PopResult:
        raise NotLeaderError("n1")

    async def forward(call: Call, _body: bytes) -> list[bytes]:
        left.append(call.seconds)
        await asyncio.sleep(10)
        raise NoAnswerError("it is gone")

    monkeypatch.setattr(service.context.pop, "receive", receive)
    dispatcher = service.service.dispatcher
    monkeypatch.setattr(dispatcher, "_forward", forward)
    for seconds, expected in ((14.0, [14, 4, 0]), (None, [None] * 3)):
        left.clear()
        call = Call("ReceiveMessage", METADATA, CLIENT, seconds=seconds)
        await dispatcher.serve(call, receive_for_20_s())
        assert left == pytest.approx(expected)


@pytest.mark.parametrize("refusal", [NoAnswerError("it is gone"), BusyError(1, 1), KeyError()])
async def test_a_nack_that_failed_is_answered_with_its_own_handle(
    service: SingleService, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """A client that takes its handle from each answer can try again."""
    await service.broker.create_topic("orders", queues=1)
    await service.send(message())
    _, (got,) = await received(service)
    handle = got.system_properties.receipt_handle
    request = pb.ChangeInvisibleDurationRequest(
        group=READERS, topic=ORDERS, receipt_handle=handle, invisible_duration=Duration(seconds=10)
    )
    answers = []
    for error in (refusal, None):
        with monkeypatch.context() as failing:
            if error is not None:
                failing.setattr(
                    service.context.pop, "change_invisible", AsyncMock(side_effect=error)
                )
            answer = await service.ask(
                "ChangeInvisibleDuration", request, pb.ChangeInvisibleDurationResponse
            )
        answers.append(answer)
        request.receipt_handle = answer.receipt_handle
    assert [each.status.code == Code.OK for each in answers] == [False, True]
    assert answers[0].receipt_handle == handle != answers[1].receipt_handle
