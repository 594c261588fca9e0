"""The calls beside SendMessage: what they answer, and what they refuse with which code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp

from broker.grpc.call import Call
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, FilterType, MessageType
from broker.grpc.received_messages import received_message
from broker.grpc.route_calls import RouteCalls
from broker.grpc.routes import TopicRoute
from broker.grpc.sent_messages import message_of
from broker.limits import GRPC
from broker.remoting.protocol.codes import RequestCode
from broker.topics_and_groups import GROUP_SIZE_MAX, TopicConfig
from dledger.wire.endpoint import Endpoint
from tests.broker.grpc.single_service import (
    NOW_MS,
    SingleService,
    message,
    running_service,
)
from tests.broker.single_broker import messages
from tests.support.virtual_network import NetworkedLoop

ORDERS, READERS = df.Resource(name="orders"), df.Resource(name="readers")
NOBODY_KNOWS: Any = 77
SIMPLE = {"invisible_duration": Duration(seconds=30), "long_polling_timeout": Duration(seconds=1)}


def receiving(**changed: Any) -> pb.ReceiveMessageRequest:
    told: dict[str, Any] = {
        "group": READERS,
        "message_queue": df.MessageQueue(topic=ORDERS),
        "batch_size": 16,
        **SIMPLE,
    }
    return pb.ReceiveMessageRequest(**(told | changed))


async def received(service: SingleService, **changed: Any) -> tuple[int, list[df.Message]]:
    """The code, and the messages."""
    body = receiving(**changed).SerializeToString()
    answers = [
        pb.ReceiveMessageResponse.FromString(each)
        for each in await service.raw("ReceiveMessage", body)
    ]
    found = [each.message for each in answers if each.HasField("message")]
    assert answers[0].HasField("status")
    assert not found or answers[-1].HasField("delivery_timestamp")
    return answers[0].status.code, found


async def acked(
    service: SingleService, *handles: str, group: df.Resource = READERS
) -> pb.AckMessageResponse:
    entries = [pb.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
    request = pb.AckMessageRequest(group=group, topic=ORDERS, entries=entries)
    return await service.ask("AckMessage", request, pb.AckMessageResponse)


async def test_a_message_of_a_client_of_rocketmq_4_is_received_with_all_of_it(
    service: SingleService,
) -> None:
    await service.broker.create_topic("orders", queues=2)
    text = "UNIQ_KEY\x01ABC\x02TAGS\x01A\x02KEYS\x01k1 k2\x02colour\x01red\x02WAIT\x01true\x02"
    await service.broker.send("orders", 1, b"hello", text)
    code, (got,) = await received(service)
    assert code == Code.OK
    system = got.system_properties
    assert (got.topic, got.body, dict(got.user_properties)) == (
        ORDERS,
        b"hello",
        {"colour": "red"},
    )
    assert (system.message_id, system.tag, [*system.keys]) == ("ABC", "A", ["k1", "k2"])
    assert system.body_digest.checksum == "5D41402ABC4B2A76B9719D911017C592"
    assert (system.delivery_attempt, system.queue_id, system.queue_offset) == (1, 1, 0)
    assert system.born_host.startswith("10.0.0.2:")
    assert system.invisible_duration == Duration(seconds=30)


async def test_what_is_acknowledged_never_comes_again_and_the_rest_does(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        await service.broker.create_topic("orders", queues=1)
        await service.send(message(message_id="1"), message(message_id="2", body=b"two"))
        _, (first, second) = await received(service)
        answer = await acked(service, first.system_properties.receipt_handle)
        assert answer.status.code == Code.OK
        again = await acked(service, first.system_properties.receipt_handle, "none")
        assert again.status.code == Code.INVALID_RECEIPT_HANDLE
        await asyncio.sleep(31)
        code, (got,) = await received(service)
        assert (code, got.body) == (Code.OK, second.body)
        assert got.system_properties.delivery_attempt == 2
        assert (await received(service))[0] == Code.MESSAGE_NOT_FOUND


async def test_a_changed_time_brings_another_handle(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    await service.send(message())
    _, (got,) = await received(service)
    handle = got.system_properties.receipt_handle
    request = pb.ChangeInvisibleDurationRequest(
        group=READERS,
        topic=ORDERS,
        receipt_handle=handle,
        invisible_duration=Duration(seconds=60),
    )
    answer = await service.ask(
        "ChangeInvisibleDuration", request, pb.ChangeInvisibleDurationResponse
    )
    assert answer.status.code == Code.OK
    assert (await acked(service, handle)).status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await acked(service, answer.receipt_handle)).status.code == Code.OK


async def test_a_message_that_is_given_up_is_a_dead_letter(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    await service.send(message())
    _, (got,) = await received(service)
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=READERS, topic=ORDERS, receipt_handle=got.system_properties.receipt_handle
    )
    answer = await service.ask(
        "ForwardMessageToDeadLetterQueue",
        request,
        pb.ForwardMessageToDeadLetterQueueResponse,
    )
    assert answer.status.code == Code.OK
    (letter,) = messages(await service.broker.pull("%DLQ%readers", 0, 0))
    assert (letter.body, letter.property_map["RETRY_TOPIC"]) == (b"hello", "orders")

    await service.broker.send("%RETRY%readers", 0, letter.body, "RETRY_TOPIC\x01orders\x02")
    code, (got,) = await received(service)
    assert (code, got.body, got.topic) == (Code.OK, b"hello", ORDERS), "it was sent again"
    assert (await acked(service, got.system_properties.receipt_handle)).status.code == Code.OK
    assert await received(service) == (Code.MESSAGE_NOT_FOUND, [])


async def test_a_waiting_receive_ends_with_a_message(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    waiting = asyncio.ensure_future(received(service))
    await asyncio.sleep(0.5)
    await service.send(message())
    assert [got.body for got in (await waiting)[1]] == [b"hello"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group": df.Resource()}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": df.Resource(name="a b")}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": df.Resource(name="g" * (GROUP_SIZE_MAX + 1))}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": df.MessageQueue()}, Code.ILLEGAL_TOPIC),
        (
            {"message_queue": df.MessageQueue(topic=df.Resource(name="none"))},
            Code.TOPIC_NOT_FOUND,
        ),
        ({"batch_size": 0}, Code.BAD_REQUEST),
        ({"batch_size": -1}, Code.BAD_REQUEST),
        ({"invisible_duration": Duration()}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": Duration(seconds=-1)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": Duration(seconds=1 << 40)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"long_polling_timeout": Duration(seconds=-1)}, Code.ILLEGAL_POLLING_TIME),
        ({"attempt_id": "i" * 1000}, Code.BAD_REQUEST),
        (
            {"filter_expression": df.FilterExpression(type=NOBODY_KNOWS)},
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
        (
            {"filter_expression": df.FilterExpression(type=FilterType.SQL, expression="a >")},
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
        (
            {"filter_expression": df.FilterExpression(type=FilterType.TAG, expression="||")},
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
    ],
)
async def test_a_bad_receive_is_refused_with_a_code(
    service: SingleService, changed: dict[str, Any], code: Code
) -> None:
    await service.broker.create_topic("orders", queues=1)
    assert await received(service, **changed) == (code, [])


async def test_a_transaction_is_ended_by_its_id_at_any_broker(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    answer = await service.send(message(message_type=MessageType.TRANSACTION))
    (entry,) = answer.entries
    ends = pb.EndTransactionRequest(
        topic=ORDERS,
        message_id=entry.message_id,
        transaction_id=entry.transaction_id,
        resolution=df.TransactionResolution.COMMIT,
    )
    ended = await service.ask("EndTransaction", ends, pb.EndTransactionResponse)
    assert ended.status.code == Code.OK
    _, (got,) = await received(service)
    assert got.system_properties.message_type == MessageType.TRANSACTION
    (record,) = messages(await service.broker.pull("orders", 0, 0))
    assert record.sys_flag == 8  # 12 is RocketMQ's rollback
    again = await service.ask("EndTransaction", ends, pb.EndTransactionResponse)
    assert again.status.code == Code.INVALID_TRANSACTION_ID


@pytest.mark.parametrize("named", ["", "x" * 32, "-" * 32, "0" * 31, "0" * 32])
async def test_what_names_no_transaction_is_refused(service: SingleService, named: str) -> None:
    request = pb.EndTransactionRequest(
        topic=ORDERS, transaction_id=named, resolution=df.TransactionResolution.COMMIT
    )
    answer = await service.ask("EndTransaction", request, pb.EndTransactionResponse)
    assert answer.status.code == Code.INVALID_TRANSACTION_ID


async def test_offsets_are_those_of_rocketmq_4(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    for number in range(3):
        await service.send(message(message_id=str(number)))
    queue = df.MessageQueue(topic=ORDERS, id=0)
    place: dict[str, Any] = {"group": READERS, "message_queue": queue}
    get = pb.GetOffsetRequest(**place)
    answer = await service.ask("GetOffset", get, pb.GetOffsetResponse)
    assert answer.status.code == Code.OFFSET_NOT_FOUND
    for offset, code in ((2, Code.OK), (4, Code.ILLEGAL_OFFSET), (-1, Code.ILLEGAL_OFFSET)):
        update = pb.UpdateOffsetRequest(offset=offset, **place)
        done = await service.ask("UpdateOffset", update, pb.UpdateOffsetResponse)
        assert done.status.code == code
    answer = await service.ask("GetOffset", get, pb.GetOffsetResponse)
    assert (answer.status.code, answer.offset) == (Code.OK, 2)
    policies = df.QueryOffsetPolicy
    expected = {policies.BEGINNING: 0, policies.END: 3, policies.TIMESTAMP: 0}
    for policy, offset in expected.items():
        query = pb.QueryOffsetRequest(
            message_queue=queue, query_offset_policy=policy, timestamp=Timestamp(seconds=1)
        )
        found = await service.ask("QueryOffset", query, pb.QueryOffsetResponse)
        assert (found.status.code, found.offset) == (Code.OK, offset)
    query.query_offset_policy = NOBODY_KNOWS
    found = await service.ask("QueryOffset", query, pb.QueryOffsetResponse)
    assert found.status.code == Code.BAD_REQUEST
    pull = pb.PullMessageRequest(offset=1, batch_size=8, **place)
    answers = [
        pb.PullMessageResponse.FromString(each)
        for each in await service.raw("PullMessage", pull.SerializeToString())
    ]
    assert [each.WhichOneof("content") for each in answers] == [
        "status",
        "message",
        "message",
        "next_offset",
    ]
    assert answers[-1].next_offset == 3


@pytest.mark.parametrize(
    ("own", "told"),
    [(None, ["10.0.0.1"]), ("10.0.0.2", ["10.0.0.2"]), ("10.9.9.9", ["10.0.0.1"])],
)
def test_a_client_that_dials_one_address_gets_one(own: str | None, told: list[str]) -> None:
    hosts = [f"10.0.0.{number}" for number in (1, 2, 3)]

    class Known:
        async def find(self, name: str, *, lasting: bool) -> list[TopicRoute]:
            assert not lasting
            endpoints = tuple(Endpoint(host, 10916) for host in hosts)
            return [TopicRoute("broker-a", TopicConfig(name, 1, 1), endpoints)]

    async def addresses(language: str) -> list[str]:
        own_endpoint = Endpoint(own, 10916) if own else None
        calls = RouteCalls(cast("Any", Known()), own_endpoint, lambda _client: None)
        call = Call("QueryRoute", {"x-mq-language": language}, "127.0.0.1:4711")
        (answer,) = await calls.route(call, pb.QueryRouteRequest(topic=ORDERS))
        assert isinstance(answer, pb.QueryRouteResponse)
        return [at.host for at in answer.message_queues[0].broker.endpoints.addresses]

    assert asyncio.run(addresses("PYTHON")) == hosts
    assert asyncio.run(addresses("HTTP")) == told


async def test_every_call_of_the_definition_is_there(service: SingleService) -> None:
    defined = {each.name for each in pb.DESCRIPTOR.services_by_name["MessagingService"].methods}
    assert defined - set(service.service.dispatcher.methods) == {
        "Telemetry",
        "SyncLiteSubscription",
    }


async def test_no_bytes_crash_a_call(service: SingleService) -> None:
    """Empty requests, fields of the wrong kind, and noise: each is answered with a status."""
    rng = Random(7)

    for name, method in service.service.dispatcher.methods.items():
        bodies = [b"", b"\xff", *(rng.randbytes(rng.randrange(1, 60)) for _ in range(60))]
        # The bytes of other requests: their numbers are the same, their kinds are not.
        bodies += [
            each.SerializeToString()
            for each in (message(), receiving(), df.MessageQueue(topic=ORDERS, id=-5))
        ]
        for body in bodies:
            first = (await service.raw(name, body))[0]
            answer: AnyMessage = method.response.FromString(first)
            code = answer.status.code  # type: ignore[attr-defined]  # every answer has one
            assert code in Code.values()
            assert code not in (0, Code.INTERNAL_SERVER_ERROR), (name, body)


async def test_a_failure_of_ours_is_a_status_too(service: SingleService) -> None:
    service.context.ingest.submit = None  # type: ignore[method-assign, assignment]  # it fails
    assert (await service.send(message())).status.code == Code.INTERNAL_SERVER_ERROR


async def test_too_many_calls_and_bytes_are_refused_as_busy(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.broker.create_topic("orders", queues=1)
    dispatcher = service.service.dispatcher
    for name, value in (("calls", GRPC.calls_max), ("bytes", GRPC.bytes_max)):
        monkeypatch.setattr(dispatcher.budget, name, value)
        answer = await service.send(message())
        assert answer.status.code == Code.TOO_MANY_REQUESTS
        monkeypatch.setattr(dispatcher.budget, name, 0)
    assert dispatcher.refusals["busy"] == 2


async def test_refusals_are_counted_by_reason(service: SingleService) -> None:
    await service.send(message("RMQ_SYS_TRANS_HALF_TOPIC"))
    answer = await service.raw("QueryRoute", b"")
    assert pb.QueryRouteResponse.FromString(answer[0]).status.code == Code.ILLEGAL_TOPIC
    assert service.service.dispatcher.refusals == {"illegal_topic_name": 1, "forbidden": 1}


async def test_both_ways_a_message_stays_what_it_is(service: SingleService) -> None:
    """What is sent by gRPC, stored, read as RocketMQ 4 does, and given out again."""

    await service.broker.create_topic("orders", queues=1)
    sent = message(tag="A", keys=["k1"], trace_context="t")
    sent.user_properties["colour"] = "red"
    assert received_message(sent, NOW_MS, 100).message_id == "0102030405"
    await service.send(sent)
    (record,) = messages(await service.broker.pull("orders", 0, 0))
    got = message_of(record, ORDERS)
    assert got.user_properties == sent.user_properties
    for field in ("tag", "keys", "message_id", "trace_context", "message_type"):
        assert getattr(got.system_properties, field) == getattr(sent.system_properties, field)


async def recalled(
    service: SingleService, handle: str, topic: df.Resource = ORDERS
) -> tuple[int, str]:
    """The code, and the message id."""
    request = pb.RecallMessageRequest(topic=topic, recall_handle=handle)
    answer = await service.ask("RecallMessage", request, pb.RecallMessageResponse)
    return answer.status.code, answer.message_id


async def test_a_delayed_message_is_taken_back_by_its_handle(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    await service.broker.create_topic("bills", queues=1)
    delivery = Timestamp(seconds=NOW_MS // 1000 + 60)
    delayed = message(delivery_timestamp=delivery, message_type=MessageType.DELAY)
    (entry,) = (await service.send(delayed)).entries
    (plain,) = (await service.send(message(message_id="p"))).entries
    assert (bool(entry.recall_handle), plain.recall_handle) == (True, "")
    assert await recalled(service, entry.recall_handle, df.Resource(name="bills")) == (
        Code.BAD_REQUEST,
        "",
    )
    assert await recalled(service, "x") == (Code.BAD_REQUEST, "")
    assert await recalled(service, entry.recall_handle) == (
        Code.OK,
        delayed.system_properties.message_id,
    )
    assert await recalled(service, entry.recall_handle) == (
        Code.OK,
        delayed.system_properties.message_id,
    )
    service.broker.now_ms += 61_000
    await asyncio.sleep(5)
    (record,) = messages(await service.broker.pull("orders", 0, 0))
    assert record.property_map["UNIQ_KEY"] == "p"
    assert await recalled(service, entry.recall_handle) == (Code.NOT_FOUND, "")
    assert RequestCode.FORWARD_GRPC in service.service.handlers
