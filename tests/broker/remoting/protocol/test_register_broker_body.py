"""Registration bodies: plain, compressed, old, and malformed."""

from __future__ import annotations

import zlib
from struct import pack

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.limits import BodyLimits
from broker.remoting.protocol import register_broker_body
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.register_broker_body import (
    DataVersion,
    QueueData,
    TopicTable,
    decode_data_version,
    decode_topic_table,
    encode_topic_table,
)
from broker.topics_and_groups import TopicConfig

WRAPPER = {
    "dataVersion": {"counter": 7, "timestamp": 1_700_000_000_000},
    "topicConfigTable": {
        "T": {
            "order": False,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T",
            "topicSysFlag": 1,
            "writeQueueNums": 8,
        }
    },
}
VERSION = DataVersion(timestamp=1_700_000_000_000, counter=7)


def sized(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def compressed_body(*topics: bytes, filter_servers: bytes = b"[]", rest: bytes = b"") -> bytes:
    parts = [sized(orjson.dumps(WRAPPER["dataVersion"])), pack(">i", len(topics))]
    parts += [sized(topic) for topic in topics]
    return zlib.compress(b"".join([*parts, sized(filter_servers), rest]))


def test_a_plain_body_is_decoded() -> None:
    body = orjson.dumps({"topicConfigSerializeWrapper": WRAPPER, "filterServerList": ["f:1"]})
    assert decode_topic_table(body, compressed=False) == TopicTable(
        VERSION, {"T": QueueData(read_queues=4, write_queues=8, perm=6, sys_flag=1)}, ["f:1"]
    )


@pytest.mark.parametrize("plain_bytes", [register_broker_body.PLAIN_BYTES, 0])
def test_what_a_broker_encodes_a_name_server_decodes(
    plain_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_broker_body, "PLAIN_BYTES", plain_bytes)
    topics = {"T": TopicConfig("T", 4, 8, 6).as_json(), "U": TopicConfig("U", 1, 1, 2).as_json()}
    body, compressed, left_out = encode_topic_table({"counter": 7, "timestamp": 5}, topics)
    assert (compressed, left_out) == (plain_bytes == 0, 0)
    assert decode_topic_table(body, compressed=compressed) == TopicTable(
        DataVersion(timestamp=5, counter=7),
        {"T": QueueData(4, 8, 6), "U": QueueData(1, 1, 2)},
        [],
    )


def test_the_body_of_a_broker_before_3_0_11_is_decoded() -> None:
    table = decode_topic_table(orjson.dumps(WRAPPER), compressed=False)
    assert table.data_version == VERSION
    assert list(table.queues) == ["T"]


def test_a_compressed_body_is_decoded() -> None:
    body = compressed_body(b"T 4 8 6 SINGLE_TAG", b"U 1 1 4 SINGLE_TAG", filter_servers=b'["f:1"]')
    assert decode_topic_table(body, compressed=True) == TopicTable(
        VERSION, {"T": QueueData(4, 8, 6), "U": QueueData(1, 1, 4)}, ["f:1"]
    )


def test_what_a_5_x_broker_appends_is_passed_over() -> None:
    body = compressed_body(b'T 4 8 6 SINGLE_TAG {"a":"b"}', rest=pack(">i", 1) + sized(b"{}"))
    assert decode_topic_table(body, compressed=True).queues == {"T": QueueData(4, 8, 6)}


def test_an_empty_body_is_an_empty_table() -> None:
    assert decode_topic_table(b"", compressed=False) == TopicTable(DataVersion(), {}, [])


def test_null_tables_are_empty() -> None:
    body = b'{"topicConfigSerializeWrapper":{"dataVersion":null,"topicConfigTable":null}}'
    assert decode_topic_table(body, compressed=False) == TopicTable(DataVersion(), {}, [])


def test_a_topic_without_numbers_takes_those_of_java() -> None:
    body = b'{"topicConfigTable":{"T":{}}}'
    table = decode_topic_table(body, compressed=False)
    assert table.queues == {"T": QueueData(read_queues=16, write_queues=16, perm=6)}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"{", "the body is not JSON"),
        (b"[]", "the body is not a JSON object"),
        (b'{"topicConfigSerializeWrapper":1}', "the topic table is not a JSON object"),
        (b'{"topicConfigTable":{"T":1}}', "topic T is not a JSON object"),
        (b'{"topicConfigTable":{"T":{"perm":"6"}}}', "perm is not an integer: '6'"),
        (b'{"dataVersion":7}', "dataVersion is not a JSON object"),
        (b'{"filterServerList":[1]}', "filterServerList is not a list of strings"),
    ],
)
def test_a_malformed_plain_body_is_named(body: bytes, what: str) -> None:
    with pytest.raises(FieldError) as caught:
        decode_topic_table(body, compressed=False)
    assert caught.value.remark.startswith(what)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"plain", "the body is not a zlib stream"),
        (zlib.compress(b"\0\0"), "the inflated body ends at byte 2, inside a number"),
        (zlib.compress(pack(">i", -1)), "a size of -1 at byte 0"),
        (zlib.compress(pack(">i", 9)), "a size of 9 at byte 0"),
        (compressed_body(b"T 4 8"), "b'T 4 8' does not describe a topic"),
        (compressed_body(b"T 1_0 8 6"), "b'T 1_0 8 6' does not describe a topic"),
        (compressed_body(b"T a b c"), "b'T a b c' does not describe a topic"),
        (compressed_body(filter_servers=b"["), "filterServerList is not JSON"),
    ],
)
def test_a_malformed_compressed_body_is_named(body: bytes, what: str) -> None:
    with pytest.raises(FieldError) as caught:
        decode_topic_table(body, compressed=True)
    assert caught.value.remark.startswith(what)


def test_a_body_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_broker_body, "BODY_LIMITS", BodyLimits(inflated_size=1000))
    with pytest.raises(FieldError, match="inflates to more than 1000 bytes"):
        decode_topic_table(zlib.compress(bytes(100_000)), compressed=True)


@given(st.binary(max_size=60), st.booleans())
def test_arbitrary_bodies_decode_or_raise_field_error(body: bytes, compressed: bool) -> None:
    try:
        table = decode_topic_table(
            zlib.compress(body) if compressed else body, compressed=compressed
        )
    except FieldError as error:
        assert error.code == 1  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(table, TopicTable)


def test_a_data_version_round_trips() -> None:
    version = DataVersion(timestamp=1, counter=2, state_version=3)
    assert decode_data_version(orjson.dumps(version.to_json())) == version
    assert decode_data_version(b"") == DataVersion()
