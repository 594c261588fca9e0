"""Messages as columns are what each message by itself says, whatever it holds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.datasource.data_source import messages_batch, to_batch
from spark.datasource.log_ranges import LogEntry
from spark.datasource.message_columns import MessageColumns, UnusualError
from spark.datasource.options import ReadOptions, View, parse_options
from spark.datasource.schemas import arrow_schema, columns
from spark.datasource.view_rows import message_rows
from spark.errors import OptionError, ReplicaError
from store.log.entry import HEADER_SIZE, EntryKind, build_entry
from store.message.batch import QueueRun, encode_batch
from store.message.record import PendingMessage, make_pending_message
from store.verify.log.batch_columns import TopicNumbers

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
STORED_MS = 1_700_000_000_999
ALL = ReadOptions(View.MESSAGES, bodies=True)
TEXTS = st.text(st.sampled_from("aZ9 -é\N{SNOWMAN}\x01"), max_size=12)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "", "é", "UNIQ_KEY2", "a-longer-name"])
PROPERTIES = st.dictionaries(NAMES, TEXTS, max_size=6)


def log_entry(
    index: int, position: int, runs: list[QueueRun], stored_ms: int = STORED_MS
) -> LogEntry:
    parts = encode_batch(position, stored_ms, HOST, runs, b"")
    entry = build_entry(EntryKind.DATA, index, 1, position, 0, parts)
    body = bytes(entry.body)
    return LogEntry(index, 1, "data", position, entry.size, 0, 0, "log", position, body)


def encoded(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def staged(topic: str, properties: bytes, number: int, born_ms: int = 1) -> PendingMessage:
    return make_pending_message(
        topic,
        bytes((number,)) * (number * 7),
        properties,
        flag=number - 3,
        sys_flag=number & 0xF,
        born_timestamp=born_ms,
        born_host=bytes((127, 0, 0, number)) + (1 << 31 | number).to_bytes(4, "big"),
        reconsume_times=number,
        prepared_position=-number,
    )


def entries_of(messages: list[tuple[str, bytes, int]], at_once: int = 3) -> list[LogEntry]:
    entries = []
    position = 1 << 40
    for first in range(0, len(messages), at_once):
        runs = [
            QueueRun(topic, number, first, [staged(topic, properties, number, born_ms)])
            for number, (topic, properties, born_ms) in enumerate(messages[first:][:at_once])
        ]
        entries.append(log_entry(first, position, runs))
        position += entries[-1].size + 100
    return entries


def by_rows(entries: list[LogEntry], options: ReadOptions = ALL) -> pa.RecordBatch:
    return to_batch(list(message_rows("g/n0", entries, options)), options)


def by_columns(entries: list[LogEntry], options: ReadOptions = ALL) -> pa.RecordBatch:
    found = MessageColumns("g/n0", entries, TopicNumbers(), options.topic)
    schema = arrow_schema(options)
    arrays = [found.column(field.name, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# The first and the last that a calendar holds, and those beside them.
EDGES_MS = (-62_135_596_800_001, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000)
BORN = st.sampled_from((0, 1_700_000_000_001, -1, *EDGES_MS, (1 << 63) - 1, -1 << 63))
SENT = st.lists(
    st.tuples(st.sampled_from(["bills", "é", "t" * 127]), PROPERTIES.map(encoded), BORN),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(SENT, st.sampled_from([None, "bills"]))
def test_all_columns_are_those_of_the_rows(
    messages: list[tuple[str, bytes, int]], topic: str | None
) -> None:
    entries = entries_of(messages)
    options = ReadOptions(View.MESSAGES, bodies=True, topic=topic)
    rows = list(message_rows("g/n0", entries, options))
    found = list(messages_batch("g/n0", entries, TopicNumbers(), options))
    if not rows:
        assert found == []
        return
    assert by_columns(entries, options) == found[0]
    found[0].validate(full=True)
    assert found[0].to_pylist() == to_batch(rows, options).to_pylist()


ODD = [
    b"TAGS\x01a\x02TAGS\x01b\x02",  # the last one counts
    b"a-longer-name\x01a\x02x\x01y\x02a-longer-name\x01\x02",
    b"TAGS\x01\xff\xfe\x02",
    b"\xff\x01a\x02",
]
PLAIN = [
    b"",
    b"\x02",
    b"TAGS\x01a",  # no end
    b"no value\x02TAGS\x01b\x02",
    b"\x02\x02KEYS\x01a b\x02\x01\x02",
    b"TAGS\x02TAGS\x01\x01\x02",
    b"KEYS\x01",
]


@pytest.mark.parametrize("properties", ODD + PLAIN)
def test_odd_properties_are_read_as_rows_are(properties: bytes) -> None:
    entries = entries_of([("bills", each, 1) for each in (b"x\x01y\x02", properties, b"TAGS\x01z")])
    (found,) = messages_batch("g/n0", entries, TopicNumbers(), ALL)
    assert found.to_pylist() == by_rows(entries).to_pylist()


@pytest.mark.parametrize("properties", PLAIN)
def test_strings_that_lack_something_need_no_rows(properties: bytes) -> None:
    assert len(by_columns(entries_of([("bills", properties, 1)]))) == 1


@pytest.mark.parametrize("properties", ODD)
def test_a_name_twice_and_bytes_that_are_no_text_are_unusual(properties: bytes) -> None:
    with pytest.raises(UnusualError):
        by_columns(entries_of([("bills", properties, 1)]))


def test_a_record_that_is_wrong_is_told_with_its_place() -> None:
    entry = log_entry(5, 4096, [QueueRun("bills", 0, 0, [staged("bills", b"", 9)])])
    body = bytearray(entry.body)
    body[100] ^= 1
    entry.body = bytes(body)
    with pytest.raises(ReplicaError, match=f"log, byte {4096 + HEADER_SIZE}: entry 5: .*body CRC"):
        list(messages_batch("g/n0", [entry], TopicNumbers(), ALL))


def test_an_entry_without_messages_gives_no_rows() -> None:
    assert list(messages_batch("g/n0", [log_entry(0, 0, [])], TopicNumbers(), ALL)) == []


def test_columns_come_as_they_are_named() -> None:
    options = parse_options({"view": "messages", "columns": "Body, topic,tags"})
    assert columns(options) == (("body", "binary"), ("topic", "string"), ("tags", "string"))
    entries = entries_of([("bills", b"TAGS\x01a\x02", 1)])
    expected = [{"body": b"", "topic": "bills", "tags": "a"}]
    assert by_columns(entries, options).to_pylist() == expected
    assert by_rows(entries, options).to_pylist() == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"columns": "topic,offset"}, "option columns: the view messages has no column offset"),
        ({"columns": "topic,,tags"}, "option columns=topic,,tags: a name is empty"),
        ({"columns": "topic,Topic"}, "option columns=topic,Topic: topic is named twice"),
        ({"columns": "topic", "bodies": "true"}, "option bodies: name the column body"),
        ({"columns": "body", "view": "index"}, "the view index has no column body: it has replica"),
    ],
)
def test_columns_that_are_not_there_are_told(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        columns(parse_options({"view": "messages", **given}))
