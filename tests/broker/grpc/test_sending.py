"""SendMessage: what is stored, and what is refused with which code."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, DigestType, Encoding, MessageType
from broker.ingest.send_request import SendRequest
from broker.limits import GRPC
from broker.topics_and_groups import MESSAGE_TYPES, PERM_READ
from dledger.errors import NotServingError
from store.io.filesystem import Bytes
from tests.broker.grpc.single_service import (
    NOW_MS,
    SingleService,
    message,
    running_service,
)
from tests.broker.single_broker import messages
from tests.support.virtual_network import NetworkedLoop

LATER = Timestamp(seconds=NOW_MS // 1000 + 3600)
NOBODY_KNOWS: Any = 77


async def stored(service: SingleService, topic: str, queue: int = 0) -> list[Any]:
    answer = await service.broker.pull(topic, queue, 0)
    return messages(answer)


async def test_a_message_is_stored_with_all_that_it_brings(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    sent = message(
        tag="A",
        keys=["k1", "k2"],
        trace_context="trace",
        born_timestamp=Timestamp(seconds=1_600_000_000),
    )
    sent.user_properties["colour"] = "red"
    answer = await service.send(sent)
    assert answer.status.code == Code.OK
    (entry,) = answer.entries
    assert (entry.message_id, entry.offset, entry.transaction_id) == ("0102030405", 0, "")
    (record,) = await stored(service, "orders")
    assert record.property_map == {
        "colour": "red",
        "UNIQ_KEY": "0102030405",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "TRACE_CONTEXT": "trace",
    }
    assert record.body == b"hello"
    assert record.born_timestamp == 1_600_000_000_000
    assert record.born_host == bytes((127, 0, 0, 1)) + (4711).to_bytes(4, "big")


async def test_messages_of_one_group_go_to_one_queue(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=8)
    for number in range(16):
        sent = message(
            body=b"%d" % number,
            message_id=f"id-{number}",
            message_type=MessageType.FIFO,
            message_group="g",
        )
        assert (await service.send(sent)).status.code == Code.OK
    found = [await stored(service, "orders", queue) for queue in range(8)]
    (queue,) = [queue for queue in found if queue]
    assert [record.body for record in queue] == [b"%d" % number for number in range(16)]


async def test_a_gzip_body_is_stored_as_it_was(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    sent = message(body=gzip.compress(b"hello" * 100))
    sent.system_properties.body_encoding = Encoding.GZIP
    assert (await service.send(sent)).status.code == Code.OK
    (record,) = await stored(service, "orders")
    assert (record.body, record.sys_flag) == (b"hello" * 100, 0)


async def test_a_message_sent_again_is_stored_once(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    for _ in range(2):
        answer = await service.send(message())
        assert [entry.offset for entry in answer.entries] == [0]
    assert len(await stored(service, "orders")) == 1


async def test_a_stored_message_is_not_sent_again_where_it_would_not_be_recognised(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_service(loop, tmp_path, dedup_window_seconds=0) as service:
        await service.broker.create_topic("orders", queues=1)
        submit = service.context.ingest.submit

        def submit_to_no_leader(request: SendRequest, body: Bytes, *others: Any) -> float:
            if body == b"second":
                raise NotServingError
            return submit(request, body, *others)

        monkeypatch.setattr(service.context.ingest, "submit", submit_to_no_leader)
        answer = await service.send(message(body=b"first"), message(body=b"second"))
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.HA_NOT_AVAILABLE]
        assert [record.body for record in await stored(service, "orders")] == [b"first"]


async def test_some_of_several_messages_may_be_refused(service: SingleService) -> None:
    await service.broker.create_topic("orders", queues=1)
    await service.broker.create_topic("closed", queues=1, perm=PERM_READ)
    answer = await service.send(message(), message("closed", message_id="2"))
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.FORBIDDEN]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message(topic=""), Code.ILLEGAL_TOPIC),
        (message(topic="a b"), Code.ILLEGAL_TOPIC),
        (message(topic="t" * 128), Code.ILLEGAL_TOPIC),
        (message(topic="RMQ_SYS_TRANS_HALF_TOPIC"), Code.FORBIDDEN),
        (message(body=b""), Code.MESSAGE_BODY_EMPTY),
        (message(body=b"x" * 2001), Code.MESSAGE_BODY_TOO_LARGE),
        (message(message_id=""), Code.ILLEGAL_MESSAGE_ID),
        (message(message_id="i" * (GRPC.name_size_max + 1)), Code.ILLEGAL_MESSAGE_ID),
        (message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (message(tag=" "), Code.ILLEGAL_MESSAGE_TAG),
        (message(keys=["a", ""]), Code.ILLEGAL_MESSAGE_KEY),
        (message(keys=["a b"]), Code.ILLEGAL_MESSAGE_KEY),
        (message(keys=["k"] * 300), Code.ILLEGAL_MESSAGE_KEY),
        (message(keys=["k" * 5000]), Code.ILLEGAL_MESSAGE_KEY),
        (message(trace_context="t" * 32_768), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(trace_context="a\x02b"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(message_type=MessageType.LITE), Code.UNSUPPORTED),
        (message(message_type=MessageType.PRIORITY), Code.UNSUPPORTED),
        (message(message_type=NOBODY_KNOWS), Code.BAD_REQUEST),
        (message(message_type=MessageType.FIFO), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message(message_type=MessageType.DELAY), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message(message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message(delivery_timestamp=LATER), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (
            message(message_type=MessageType.FIFO, message_group="g" * 65),
            Code.ILLEGAL_MESSAGE_GROUP,
        ),
        (
            message(message_type=MessageType.DELAY, delivery_timestamp=Timestamp()),
            Code.ILLEGAL_DELIVERY_TIME,
        ),
        (
            message(message_type=MessageType.DELAY, delivery_timestamp=Timestamp(seconds=1 << 60)),
            Code.ILLEGAL_DELIVERY_TIME,
        ),
        (
            message(
                message_type=MessageType.DELAY,
                delivery_timestamp=Timestamp(seconds=NOW_MS // 1000 + 400 * 86_400),
            ),
            Code.ILLEGAL_DELIVERY_TIME,
        ),
        (
            message(
                message_type=MessageType.TRANSACTION,
                orphaned_transaction_recovery_duration=Duration(seconds=-1),
            ),
            Code.BAD_REQUEST,
        ),
        (
            message(body_digest=df.Digest(type=DigestType.CRC32, checksum="00000000")),
            Code.MESSAGE_CORRUPTED,
        ),
        (message(body_digest=df.Digest(type=NOBODY_KNOWS)), Code.BAD_REQUEST),
    ],
)
async def test_what_no_message_may_be_is_refused_with_a_code(
    loop: NetworkedLoop, tmp_path: Path, sent: df.Message, code: Code
) -> None:
    async with running_service(loop, tmp_path, max_message_size=2000) as service:
        answer = await service.send(sent)
        assert answer.status.code == code, answer.status
        assert answer.status.message


@pytest.mark.parametrize("name", ["", "KEYS", "UNIQ_KEY", "a\x01b"])
async def test_a_property_that_is_not_the_clients_is_refused(
    service: SingleService, name: str
) -> None:
    sent = message()
    sent.user_properties[name] = "v"
    assert (await service.send(sent)).status.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no gzip", Code.MESSAGE_CORRUPTED),
        (gzip.compress(b"hello" * 100, mtime=0)[:-9], Code.MESSAGE_CORRUPTED),
        (gzip.compress(bytes(1 << 20), mtime=0), Code.MESSAGE_BODY_TOO_LARGE),
    ],
)
async def test_a_bad_gzip_body_is_refused(
    loop: NetworkedLoop, tmp_path: Path, body: bytes, code: Code
) -> None:
    async with running_service(loop, tmp_path, max_message_size=2000) as service:
        sent = message(body=body)
        sent.system_properties.body_encoding = Encoding.GZIP
        assert (await service.send(sent)).status.code == code


async def test_a_right_digest_passes(service: SingleService) -> None:
    digest = df.Digest(type=DigestType.CRC32, checksum=f"{zlib.crc32(b'hello'):x}")
    assert (await service.send(message(body_digest=digest))).status.code == Code.OK


@pytest.mark.parametrize("count", [0, GRPC.batch_max + 1])
async def test_a_send_has_some_messages_and_not_too_many(
    service: SingleService, count: int
) -> None:
    assert (await service.send(*[message()] * count)).status.code == Code.BAD_REQUEST


KINDS: dict[str, dict[str, Any]] = {
    "NORMAL": {},
    "FIFO": {"message_type": MessageType.FIFO, "message_group": "g"},
    "DELAY": {"message_type": MessageType.DELAY, "delivery_timestamp": LATER},
    "TRANSACTION": {"message_type": MessageType.TRANSACTION},
}


@pytest.mark.parametrize("kind", MESSAGE_TYPES)
async def test_a_topic_takes_messages_of_its_type_alone(service: SingleService, kind: str) -> None:
    await service.broker.create_topic("orders", attributes=f"+message.type={kind}")
    taken = {
        name
        for name, system in KINDS.items()
        if (await service.send(message(message_id=name, **system))).status.code == Code.OK
    }
    assert taken == ({kind} if kind in KINDS else set(KINDS))
    refused = set(KINDS) - taken
    for name in refused:
        answer = await service.send(message(message_id=name, **KINDS[name]))
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    route = await service.ask(
        "QueryRoute",
        pb.QueryRouteRequest(topic=df.Resource(name="orders")),
        pb.QueryRouteResponse,
    )
    told = {MessageType.Name(each) for each in route.message_queues[0].accept_message_types}
    assert told == taken
