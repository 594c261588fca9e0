"""Reading what a pull gave."""

from __future__ import annotations

import zlib

import pytest

from broker.client.errors import UndecodableBodyError
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch
from broker.limits import BODY_LIMITS
from store.errors import CorruptRecordError
from store.message.record import decode_record
from tests.broker.client.fake_cluster import NOW_MS, Group

QUEUE = MessageQueue("T", "broker-a", 3)

VECTOR = bytes.fromhex(
    "0000007cdaa320a769c865ed00000003000000000000000000000007000000000000000000000000"
    "0000018bcfe568000a0000020000d4310000018bcfe568010a00000100002a9f0000000000000000"
    "000000000000000e48656c6c6f20526f636b65744d5109546f70696354657374000a544147530154"
    "61674102"
)
"""The record of the protocol's test vectors."""


def with_compressed_body(record: bytes, body: bytes, sys_flag: int) -> bytes:
    crc = zlib.crc32(body) & 0x7FFFFFFF
    tail = record[88 + 14 :]
    size = 88 + len(body) + len(tail)
    return b"".join(
        (
            size.to_bytes(4, "big"),
            record[4:8],
            crc.to_bytes(4, "big"),
            record[12:36],
            sys_flag.to_bytes(4, "big"),
            record[40:84],
            len(body).to_bytes(4, "big"),
            body,
            tail,
        )
    )


def with_v6_hosts(record: bytes) -> bytes:
    size = (len(record) + 24).to_bytes(4, "big")
    born, store = bytes(15) + b"\x01", bytes(15) + b"\x02"
    return b"".join(
        (
            size,
            record[4:36],
            (0x30).to_bytes(4, "big"),
            record[40:48],
            born + record[52:56],
            record[56:64],
            store + record[68:72],
            record[72:],
        )
    )


def test_every_field_of_a_record_can_be_had() -> None:
    (message,) = PulledBatch(QUEUE, VECTOR, 8)
    assert message.queue_offset == 7
    assert message.body == b"Hello RocketMQ"
    assert message.topic == "TopicTest"
    assert message.tags == "TagA"
    assert message.keys == []
    assert message.unique_key == ""
    assert message.properties == {"TAGS": "TagA"}
    assert message.message_id == "0A00000100002A9F0000000000000000"
    assert message.born_timestamp == NOW_MS
    assert message.store_timestamp == NOW_MS + 1
    assert message.born_host == "10.0.0.2:54321"
    assert message.reconsume_times == 0
    assert message.queue is QUEUE


def test_bodies_come_in_order() -> None:
    group = Group("broker-a")
    group.append("T", 3, [(b"x" * size, b"") for size in (0, 1, 1000)])
    batch = PulledBatch(QUEUE, b"".join(each.record for each in group.queues["T", 3]), 3)
    assert len(batch) == 3
    assert [len(body) for body in batch.bodies()] == [0, 1, 1000]
    assert [message.queue_offset for message in batch] == [0, 1, 2]


def test_messages_with_other_tags_are_left_out() -> None:
    """The broker filters by a 32-bit hash, and ``Aa`` and ``BB`` have the same."""
    group = Group("broker-a")
    group.append("T", 3, [(b"1", b"TAGS\x01Aa\x02"), (b"2", b"TAGS\x01BB\x02"), (b"3", b"")])
    body = b"".join(each.record for each in group.queues["T", 3])
    batch = PulledBatch(QUEUE, body, 3, frozenset({b"BB"}))
    assert list(map(bytes, batch.bodies())) == [b"2"]
    assert batch.next_offset == 3


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_compressed_body_is_decompressed(sys_flag: int) -> None:
    record = with_compressed_body(VECTOR, zlib.compress(b"long" * 1000), sys_flag)
    batch = PulledBatch(QUEUE, record, 8)
    (message,) = batch
    assert message.body == b"long" * 1000
    assert list(batch.bodies()) == [b"long" * 1000]
    assert message.raw_body == zlib.compress(b"long" * 1000)


@pytest.mark.parametrize(("sys_flag", "what"), [(0x401, "type 0x400"), (0x1, "decompressed")])
def test_a_body_that_cannot_be_decompressed_can_still_be_had_raw(sys_flag: int, what: str) -> None:
    (message,) = PulledBatch(QUEUE, with_compressed_body(VECTOR, b"??", sys_flag), 8)
    with pytest.raises(UndecodableBodyError, match=what):
        _ = message.body
    assert message.raw_body == b"??"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (zlib.compress(bytes(BODY_LIMITS.inflated_size + 1)), "more than"),
        (zlib.compress(b"long" * 1000)[:-5], "cut short"),
    ],
)
def test_a_body_that_is_no_whole_one_of_a_message_is_refused(body: bytes, what: str) -> None:
    (message,) = PulledBatch(QUEUE, with_compressed_body(VECTOR, body, 0x1), 8)
    with pytest.raises(UndecodableBodyError, match=what):
        _ = message.body


def test_a_body_may_decompress_to_what_a_frame_holds() -> None:
    whole = bytes(BODY_LIMITS.inflated_size)
    (message,) = PulledBatch(QUEUE, with_compressed_body(VECTOR, zlib.compress(whole), 0x1), 8)
    assert message.body == whole


def test_records_with_v6_hosts_are_read_between_others() -> None:
    batch = PulledBatch(QUEUE, VECTOR + with_v6_hosts(VECTOR) + VECTOR, 8)
    assert list(map(bytes, batch.bodies())) == [b"Hello RocketMQ"] * 3
    assert [message.body for message in batch] == [b"Hello RocketMQ"] * 3
    assert [message.born_host for message in batch][1] == "[::1]:54321"


@pytest.mark.parametrize("cut", [1, 40, 90, 123])
def test_a_cut_answer_is_noticed(cut: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"byte 124 of {124 + cut}"):
        PulledBatch(QUEUE, VECTOR + VECTOR[:cut], 8)


def test_a_body_that_leaves_its_record_is_noticed() -> None:
    bad = VECTOR[:84] + (1000).to_bytes(4, "big") + VECTOR[88:]
    with pytest.raises(CorruptRecordError):
        PulledBatch(QUEUE, bad + VECTOR * 10, 8)


def test_a_damaged_body_is_noticed_when_it_is_asked_for() -> None:
    bad = VECTOR[:90] + b"?" + VECTOR[91:]
    (message,) = PulledBatch(QUEUE, bad, 8)
    with pytest.raises(CorruptRecordError, match="CRC"):
        _ = message.body


def test_records_are_those_that_the_broker_stores() -> None:
    group = Group("broker-a")
    group.append("T", 3, [(b"one", b"KEYS\x01a b\x02")])
    stored = group.queues["T", 3][0].record
    (message,) = PulledBatch(QUEUE, stored, 1)
    assert message.record == decode_record(stored)
    assert message.keys == ["a", "b"]
