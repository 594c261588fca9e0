"""Message records are RocketMQ's to the byte, round trip, and are refused with a reason."""

from __future__ import annotations

import zlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptRecordError
from store.log.entry import HEADER_SIZE
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.properties import encode_properties
from store.message.record import (
    MessageRecord,
    PendingMessage,
    decode_record,
    iter_records,
    key_hash,
    make_pending_message,
    record_bounds,
    record_size,
)
from store.message.tags_code import tags_code

# Message, broker and client of the vector in the reference of RocketMQ's format.
VECTOR = bytes.fromhex(
    "0000007cdaa320a769c865ed000000030000000000000000000000070000000000000000000000000000018bcfe56800"
    "0a0000020000d4310000018bcfe568010a00000100002a9f0000000000000000000000000000000e48656c6c6f20526f"
    "636b65744d5109546f70696354657374000a54414753015461674102"
)
BORN_HOST = bytes((10, 0, 0, 2)) + (54321).to_bytes(4, "big")
STORE_HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
BORN_MS, STORED_MS = 1_700_000_000_000, 1_700_000_000_001

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TOPICS = st.text("abcXYZ-_%|", min_size=1, max_size=127)
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))


def encode(
    topic: str, staged: PendingMessage, *, position: int, queue_id: int, offset: int
) -> bytes:
    """The bytes of one record, made as a leader makes them."""
    runs = [QueueRun(topic, queue_id, offset, [staged])]
    body = b"".join(encode_batch(position - HEADER_SIZE, STORED_MS, STORE_HOST, runs, b""))
    return bytes(decode_batch(body).records)


def staged_vector() -> PendingMessage:
    return make_pending_message(
        "TopicTest",
        b"Hello RocketMQ",
        b"TAGS\x01TagA\x02",
        born_timestamp=BORN_MS,
        born_host=BORN_HOST,
    )


def test_the_vector_of_the_reference_is_encoded_to_the_byte() -> None:
    record = encode("TopicTest", staged_vector(), position=HEADER_SIZE, queue_id=3, offset=7)
    at_zero = record[:28] + bytes(8) + record[36:]
    assert at_zero == VECTOR
    assert record[28:36] == HEADER_SIZE.to_bytes(8, "big")


def test_the_vector_of_the_reference_is_decoded() -> None:
    record = decode_record(VECTOR)
    assert (record.topic, record.body) == ("TopicTest", b"Hello RocketMQ")
    assert record.property_map == {"TAGS": "TagA"}
    assert (record.queue_id, record.queue_offset, record.position) == (3, 7, 0)
    assert (record.born_timestamp, record.born_host) == (BORN_MS, BORN_HOST)
    assert (record.store_timestamp, record.store_host) == (STORED_MS, STORE_HOST)
    assert (record.size, record.body_crc) == (124, 1774740973)


def test_a_staged_message_carries_checksum_and_tag_code() -> None:
    staged = staged_vector()
    assert (staged.body_crc, staged.tags_code, staged.key_hashes) == (1774740973, 2598919, ())


def test_the_checksum_is_masked_to_31_bits() -> None:
    staged = make_pending_message("t", b"123456789", b"", born_timestamp=0, born_host=bytes(8))
    assert staged.body_crc == 1274296614 == zlib.crc32(b"123456789") & 0x7FFFFFFF


def test_the_unique_key_and_each_word_of_the_keys_are_hashed_with_the_topic() -> None:
    properties = encode_properties({"KEYS": "k1 k2  k3 ", "UNIQ_KEY": "u"})
    staged = make_pending_message("T", b"", properties, born_timestamp=0, born_host=bytes(8))
    expected = tuple(crc32c(b"T#" + key) for key in (b"u", b"k1", b"k2", b"k3"))
    assert staged.key_hashes == expected
    assert expected[0] == key_hash("T", b"u")


@given(st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "XTAGS"]), NAMES))
def test_staging_agrees_with_decoding_the_properties(properties: dict[str, str]) -> None:
    staged = make_pending_message(
        "T", b"", encode_properties(properties), born_timestamp=0, born_host=bytes(8)
    )
    words = properties.get("KEYS", "").encode().split()
    unique = properties.get("UNIQ_KEY", "")
    keys = [unique.encode(), *words] if unique else words
    assert staged.tags_code == tags_code(properties.get("TAGS", ""))
    assert staged.key_hashes == tuple(key_hash("T", key) for key in keys)


@given(
    topic=TOPICS,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=100),
    numbers=st.tuples(I32, I32, I64, I32, I64),
    place=st.tuples(st.integers(HEADER_SIZE, 2**62), I32, st.integers(0, 2**62)),
)
def test_every_field_survives_a_round_trip(
    topic: str,
    body: bytes,
    properties: bytes,
    numbers: tuple[int, int, int, int, int],
    place: tuple[int, int, int],
) -> None:
    flag, sys_flag, born, reconsume, prepared = numbers
    position, queue_id, offset = place
    sys_flag &= ~0x30
    staged = make_pending_message(
        topic,
        body,
        properties,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=BORN_HOST,
        reconsume_times=reconsume,
        prepared_position=prepared,
    )
    encoded = encode(topic, staged, position=position, queue_id=queue_id, offset=offset)
    assert len(encoded) == record_size(topic, len(body), len(properties))
    assert decode_record(b"in front" + encoded + b"behind", 8) == MessageRecord(
        size=len(encoded),
        body_crc=staged.body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=offset,
        position=position,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=BORN_HOST,
        store_timestamp=STORED_MS,
        store_host=STORE_HOST,
        reconsume_times=reconsume,
        prepared_position=prepared,
        body=body,
        topic=topic,
        properties=properties,
    )


def test_hosts_of_ip_version_6_are_read() -> None:
    born, stored = bytes(range(20)), bytes(range(20, 40))
    record = bytearray(VECTOR[:48] + born + VECTOR[56:64] + stored + VECTOR[72:])
    record[:4] = len(record).to_bytes(4, "big")
    record[36:40] = (0x30).to_bytes(4, "big")
    decoded = decode_record(record)
    assert (decoded.born_host, decoded.store_host) == (born, stored)
    assert (decoded.topic, decoded.store_timestamp) == ("TopicTest", STORED_MS)


def test_records_back_to_back_are_cut_and_read_in_order() -> None:
    records = VECTOR * 3
    assert record_bounds(records) == [(0, 124), (124, 248), (248, 372)]
    assert list(iter_records(records)) == [decode_record(VECTOR)] * 3


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, "does not fit"),
        (4, "magic"),
        (8, "body CRC"),
        (84, "leaves the record"),
        (90, "body CRC"),
        (102, "the topic leaves the record"),
        (112, "do not end the record"),
    ],
)
def test_a_damaged_record_is_refused_with_the_reason(at: int, what: str) -> None:
    record = bytearray(VECTOR)
    record[at] ^= 0x7F
    with pytest.raises(CorruptRecordError, match=what):
        decode_record(record)


@given(st.integers(0, 123))
def test_a_record_cut_short_is_refused(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        decode_record(VECTOR[:size])
    with pytest.raises(CorruptRecordError):
        record_bounds(VECTOR + VECTOR[: max(size, 1)])


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read_but_raise_nothing_else(data: bytes) -> None:
    for bytes_read in (data, VECTOR[:8] + data, VECTOR[:88] + data):
        try:
            record = decode_record(bytes_read)
        except CorruptRecordError:
            continue
        assert record.size <= len(bytes_read)
