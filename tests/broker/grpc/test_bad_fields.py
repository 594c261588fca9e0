"""Every field of every request: missing, empty, too long, of the wrong kind, and out of range.

The fields are walked by their descriptors, so a field that comes with a later definition is tried
without a word here. Each request is answered with a status that names a code, and nothing stays.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp

from broker.grpc.call import Call
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, MessageType
from broker.grpc.telemetry import Telemetry
from tests.broker.grpc.single_service import CLIENT, METADATA, NOW_MS, SingleService, message
from tests.broker.grpc.test_calls import ORDERS, READERS, SIMPLE

LONG = 70_000
MANY = 2_000
DEPTH_MAX = 5
QUEUE = df.MessageQueue(topic=ORDERS, id=0, permission=df.Permission.READ)
PLACE: dict[str, Any] = {"group": READERS, "message_queue": QUEUE}
HANDLE: dict[str, Any] = {"group": READERS, "topic": ORDERS, "receipt_handle": "0 1 2 3 0 b 0 0"}
ENDPOINTS = df.Endpoints(
    scheme=df.AddressScheme.IPv4, addresses=[df.Address(host="127.0.0.1", port=1)]
)

REQUESTS: dict[str, AnyMessage] = {
    "QueryRoute": pb.QueryRouteRequest(topic=ORDERS, endpoints=ENDPOINTS),
    "QueryAssignment": pb.QueryAssignmentRequest(topic=ORDERS, group=READERS, endpoints=ENDPOINTS),
    "Heartbeat": pb.HeartbeatRequest(group=READERS, client_type=df.ClientType.PUSH_CONSUMER),
    "NotifyClientTermination": pb.NotifyClientTerminationRequest(group=READERS),
    "SendMessage": pb.SendMessageRequest(
        messages=[
            message(
                message_type=MessageType.DELAY,
                tag="A",
                keys=["k"],
                trace_context="t",
                born_timestamp=Timestamp(seconds=1),
                delivery_timestamp=Timestamp(seconds=NOW_MS // 1000 + 60),
                body_digest=df.Digest(type=df.DigestType.CRC32, checksum="3610A686"),
            )
        ]
    ),
    "EndTransaction": pb.EndTransactionRequest(
        topic=ORDERS,
        message_id="m",
        transaction_id="0" * 32,
        resolution=df.TransactionResolution.COMMIT,
    ),
    "ReceiveMessage": pb.ReceiveMessageRequest(
        batch_size=1,
        attempt_id="a",
        filter_expression=df.FilterExpression(type=df.FilterType.TAG, expression="A"),
        **(PLACE | SIMPLE),
    ),
    "AckMessage": pb.AckMessageRequest(
        group=READERS,
        topic=ORDERS,
        entries=[pb.AckMessageEntry(message_id="m", receipt_handle=HANDLE["receipt_handle"])],
    ),
    "ChangeInvisibleDuration": pb.ChangeInvisibleDurationRequest(
        invisible_duration=Duration(seconds=1), message_id="m", **HANDLE
    ),
    "ForwardMessageToDeadLetterQueue": pb.ForwardMessageToDeadLetterQueueRequest(
        message_id="m", delivery_attempt=1, max_delivery_attempts=2, **HANDLE
    ),
    "PullMessage": pb.PullMessageRequest(
        offset=0,
        batch_size=1,
        filter_expression=df.FilterExpression(type=df.FilterType.SQL, expression="a = 1"),
        long_polling_timeout=Duration(seconds=1),
        **PLACE,
    ),
    "UpdateOffset": pb.UpdateOffsetRequest(offset=0, **PLACE),
    "GetOffset": pb.GetOffsetRequest(**PLACE),
    "QueryOffset": pb.QueryOffsetRequest(
        message_queue=QUEUE,
        query_offset_policy=df.QueryOffsetPolicy.TIMESTAMP,
        timestamp=Timestamp(seconds=1),
    ),
    "RecallMessage": pb.RecallMessageRequest(topic=ORDERS, recall_handle="x"),
}

SETTINGS: tuple[df.Settings, ...] = (
    df.Settings(
        client_type=df.ClientType.PRODUCER,
        access_point=ENDPOINTS,
        publishing=df.Publishing(topics=[ORDERS]),
        user_agent=df.UA(language=df.Language.PYTHON, version="5", platform="p", hostname="h"),
    ),
    df.Settings(
        client_type=df.ClientType.PUSH_CONSUMER,
        request_timeout=Duration(seconds=3),
        subscription=df.Subscription(
            group=READERS,
            subscriptions=[
                df.SubscriptionEntry(
                    topic=ORDERS, expression=df.FilterExpression(type=df.FilterType.TAG)
                )
            ],
            long_polling_timeout=Duration(seconds=1),
        ),
    ),
)

_Path: TypeAlias = tuple[FieldDescriptor, ...]
_INTEGERS = {FieldDescriptor.CPPTYPE_INT32: 31, FieldDescriptor.CPPTYPE_INT64: 63}


def paths(descriptor: Any, before: _Path = ()) -> Iterator[_Path]:
    """All fields, and those of the messages in them."""
    for field in descriptor.fields:
        yield (*before, field)
        if field.message_type is not None and len(before) < DEPTH_MAX - 1:
            yield from paths(field.message_type, (*before, field))


def values(field: FieldDescriptor) -> list[Any]:
    """What the field may hold by its kind, and hardly by its meaning."""
    kind = field.cpp_type
    if kind in _INTEGERS:
        largest = (1 << _INTEGERS[kind]) - 1
        return [0, -1, largest, -largest - 1]
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return [0, 77, -1]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return [b"", b"\xff" * LONG]
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return ["", " ", "\x00", "a\x01b\x02", "%", "é" * LONG, "x" * LONG]
    return [True, False] if kind == FieldDescriptor.CPPTYPE_BOOL else []


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def changed(request: AnyMessage, path: _Path) -> Iterator[bytes]:
    """The request with something else in one of its fields."""
    *outer, field = path
    if any(map(is_map, outer)):
        return

    def place() -> tuple[Any, Any]:
        copy = type(request).FromString(request.SerializeToString())
        inner: Any = copy
        for each in outer:
            inner = getattr(inner, each.name)
            if each.is_repeated:
                inner = inner[0] if inner else inner.add()
        return copy, inner

    copy, inner = place()
    inner.ClearField(field.name)
    yield copy.SerializeToString()
    copy, inner = place()
    if is_map(field):
        for name in ("", "\x01", "KEYS", "x" * LONG):
            copy, inner = place()
            inner.user_properties[name] = "v"
            yield copy.SerializeToString()
    elif field.is_repeated:
        many = getattr(inner, field.name)
        for _ in range(MANY):
            if field.message_type is not None:
                many.add()
            else:
                many.append(0 if field.enum_type is not None else "k")
        yield copy.SerializeToString()
    elif field.message_type is not None:
        getattr(inner, field.name).SetInParent()
        yield copy.SerializeToString()
    else:
        for value in values(field):
            copy, inner = place()
            setattr(inner, field.name, value)
            yield copy.SerializeToString()
    if not outer:
        yield from wrong_kind(request, field.number)


def wrong_kind(request: AnyMessage, number: int) -> Iterator[bytes]:
    """The field once more, as each kind of bytes that there is; the last is cut short."""
    for wire, data in enumerate((b"\x05", b"12345678", b"\x02\xff\xff", b"\x0b", b"", b"1234")):
        tag = number << 3 | wire
        yield request.SerializeToString() + bytes((tag & 0x7F | 0x80, tag >> 7)) + data
    yield request.SerializeToString() + bytes((number << 3 & 0x7F | 2, 0x7F))


async def test_all_calls_are_here(service: SingleService) -> None:
    assert REQUESTS.keys() == service.service.dispatcher.methods.keys()


@pytest.mark.parametrize("name", REQUESTS)
async def test_each_field_may_be_wrong(
    service: SingleService, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    await service.broker.create_topic("orders", queues=1)
    method = service.service.dispatcher.methods[name]
    request = REQUESTS[name]
    before = {*service.context.machine.state.topics}
    tried = 0
    for path in paths(request.DESCRIPTOR):
        for body in changed(request, path):
            tried += 1
            first = (await service.raw(name, body))[0]
            answer: Any = method.response.FromString(first)
            status = answer.status
            where = ".".join(each.name for each in path)
            assert status.code in Code.values(), where
            assert status.code not in (0, Code.INTERNAL_SERVER_ERROR), (where, body[:80])
            assert len(status.message) < 2_000, where
            assert status.message or status.code == Code.MULTIPLE_RESULTS, where
    assert tried > 3 * len(request.DESCRIPTOR.fields)
    budget = service.service.dispatcher.budget
    assert (budget.calls, budget.bytes, budget.unread) == (0, 0, 0)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    made = {*service.context.machine.state.topics} - before
    assert len(made) <= 8, "bad requests make topics"


@pytest.mark.parametrize("settings", SETTINGS, ids=["producer", "consumer"])
async def test_each_field_of_the_settings_may_be_wrong(
    service: SingleService, caplog: pytest.LogCaptureFixture, settings: df.Settings
) -> None:
    """The stream answers, or ends with a status; it never fails."""
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    command = pb.TelemetryCommand(settings=settings)
    told: list[pb.TelemetryCommand] = []

    async def write(body: bytes) -> None:
        told.append(pb.TelemetryCommand.FromString(body))

    async def said(body: bytes) -> AsyncIterator[bytes]:
        yield body

    for path in paths(pb.TelemetryCommand.DESCRIPTOR):
        for body in changed(command, path):
            told.clear()
            await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(body), write)
            for each in told:
                assert each.status.code in Code.values()
                assert each.status.code not in (0, Code.INTERNAL_SERVER_ERROR), path[-1].name
    assert telemetry.streams == 0
    assert len(service.service.clients) == 0
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
