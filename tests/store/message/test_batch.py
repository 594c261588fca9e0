"""The body of a DATA entry: what a leader encodes, replicas decode, and a check sees through."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptBatchError
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry
from store.message.batch import (
    FOOTER,
    KEY_ROW,
    QUEUE_ROW,
    RUN_HEADER,
    Batch,
    QueueRun,
    QueueRunHeader,
    batch_size,
    decode_batch,
    encode_batch,
    pending_bytes,
)
from store.message.record import PendingMessage, iter_records, key_hash, make_pending_message
from store.verify.log.batch_check import BatchMismatchError, check_batch
from store.verify.log.batch_columns import TopicNumbers, read_columns
from tests.support.search_effort import searching

POSITION = 4096
STORED_MS = 1_700_000_000_999
HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
TOPICS = st.sampled_from(["a", "orders", "%RETRY%g", "t" * 127])
PROPERTIES = st.sampled_from(
    [b"", b"TAGS\x01x\x02", b"KEYS\x01k1 k2\x02", b"UNIQ_KEY\x01u\x02TAGS\x01y\x02KEYS\x01k\x02"]
)


@st.composite
def staged_runs(draw: st.DrawFn) -> list[QueueRun]:
    """Runs of up to four queues, with few messages each."""
    runs = []
    for queue_id in range(draw(st.integers(0, 4))):
        topic = draw(TOPICS)
        content = st.lists(st.tuples(st.binary(max_size=40), PROPERTIES), min_size=1, max_size=5)
        messages = [stage(topic, body, properties) for body, properties in draw(content)]
        runs.append(QueueRun(topic, queue_id, draw(st.integers(0, 2**40)), messages))
    return runs


def stage(topic: str, body: bytes, properties: bytes) -> PendingMessage:
    return make_pending_message(topic, body, properties, born_timestamp=1, born_host=HOST)


def entry_of(runs: list[QueueRun], commands: bytes = b"") -> Entry:
    parts = encode_batch(POSITION, STORED_MS, HOST, runs, commands)
    return build_entry(EntryKind.DATA, 5, 1, POSITION, 0, parts)


def example() -> Entry:
    """Two runs, three records, three key rows."""
    return entry_of(
        [
            QueueRun("orders", 0, 7, [stage("orders", b"one", b"TAGS\x01x\x02KEYS\x01k1 k2\x02")]),
            QueueRun("bills", 3, 0, [stage("bills", b"two", b""), stage("bills", b"three", b"")]),
        ]
    )


@given(staged_runs(), st.binary(max_size=20))
def test_the_size_is_known_before_the_position(runs: list[QueueRun], commands: bytes) -> None:
    body = b"".join(encode_batch(POSITION, STORED_MS, HOST, runs, commands))
    message_bytes = sum(pending_bytes(run.messages) for run in runs)
    assert batch_size([run.topic for run in runs], message_bytes, commands) == len(body)


@given(staged_runs(), st.binary(max_size=20))
def test_a_batch_survives_a_round_trip(runs: list[QueueRun], commands: bytes) -> None:
    entry = entry_of(runs, commands)
    batch = decode_batch(entry.body)
    assert bytes(batch.commands) == commands
    first_row = 0
    for run, header in zip(runs, batch.runs, strict=True):
        count = len(run.messages)
        assert header == QueueRunHeader(run.topic, run.queue_id, run.first_offset, count, first_row)
        first_row += count
    records = list(iter_records(batch.records))
    sent = [
        (run.topic, run.queue_id, run.first_offset + number, message.body, message.properties)
        for run in runs
        for number, message in enumerate(run.messages)
    ]
    assert [
        (each.topic, each.queue_id, each.queue_offset, each.body, each.properties)
        for each in records
    ] == sent


@given(staged_runs())
def test_rows_say_where_the_records_lie_in_the_log(runs: list[QueueRun]) -> None:
    entry = entry_of(runs)
    batch = decode_batch(entry.body)
    place = POSITION + HEADER_SIZE
    rows, keys = [], []
    messages = [(run.topic, message) for run in runs for message in run.messages]
    for record, (topic, message) in zip(iter_records(batch.records), messages, strict=True):
        assert record.position == place
        rows.append((place, record.size, message.tags_code))
        words = record.property_map.get("KEYS", "").split()
        unique = record.property_map.get("UNIQ_KEY")
        if unique:
            words.insert(0, unique)
        keys += [(key_hash(topic, key.encode()), place, STORED_MS // 1000) for key in words]
        place += record.size
    assert list(QUEUE_ROW.iter_unpack(batch.rows)) == rows
    assert list(KEY_ROW.iter_unpack(batch.key_rows)) == keys


@given(st.integers(0, 400))
def test_a_batch_cut_short_is_refused(size: int) -> None:
    body = example().body
    with pytest.raises(CorruptBatchError):
        decode_batch(body[: min(size, len(body) - 1)])


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_with_the_typed_error(data: bytes) -> None:
    for body in (data, data + bytes(FOOTER.size - 1) + b"\x01"):
        try:
            batch = decode_batch(body)
        except CorruptBatchError:
            continue
        assert sum(run.row_count for run in batch.runs) * QUEUE_ROW.size == len(batch.rows)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_arbitrary_run_headers_are_refused_with_the_typed_error(runs: bytes, count: int) -> None:
    body = bytes(QUEUE_ROW.size * count) + runs + FOOTER.pack(0, count, 0, len(runs), 0, 1)
    try:
        batch = decode_batch(body)
    except CorruptBatchError:
        return
    assert sum(run.row_count for run in batch.runs) == count


def test_another_version_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="version 2 is not 1"):
        decode_batch(FOOTER.pack(0, 0, 0, 0, 0, 2))


def test_runs_that_name_other_records_than_the_footer_are_refused() -> None:
    runs = RUN_HEADER.pack(0, 0, 2, 1) + b"t"
    body = bytes(QUEUE_ROW.size) + runs + FOOTER.pack(0, 1, 0, len(runs), 0, 1)
    with pytest.raises(CorruptBatchError, match="the runs name 2 records, the footer 1"):
        decode_batch(body)


# --- the deep check


@given(staged_runs(), st.sampled_from([b"", msgpack.packb([["expire", 1]])]))
def test_what_a_leader_encodes_passes_the_check(runs: list[QueueRun], commands: bytes) -> None:
    entry = entry_of(runs, commands)
    check_batch(entry, decode_batch(entry.body))


def uniform() -> Entry:
    """Messages of one layout per topic, with lengths of bodies that differ."""

    def sent(topic: str, count: int) -> list[PendingMessage]:
        words = [b"%02d" % number for number in range(10, 10 + count)]
        return [
            stage(
                topic,
                b"x" * int(word),
                b"UNIQ_KEY\x01u%b\x02TAGS\x01t\x02KEYS\x01a%b z\x02" % (word, word),
            )
            for word in words
        ]

    runs = [
        QueueRun("orders", 0, 7, sent("orders", 9)),
        QueueRun("orders", 1, 2, sent("orders", 5)),
    ]
    return entry_of([*runs, QueueRun("bills", 3, 0, sent("bills", 6))])


def is_proved(entry: Entry) -> bool:
    return read_columns(entry.data, POSITION, [entry], TopicNumbers()) is not None


def is_right(entry: Entry, batch: Batch) -> bool:
    """What the check record by record says."""
    try:
        check_batch(entry, batch)
    except BatchMismatchError:
        return False
    return True


def test_messages_of_one_layout_are_proved_column_by_column() -> None:
    entry = uniform()
    assert is_proved(entry)


@searching(300)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_columns_and_the_check_record_by_record_agree_on_any_flipped_bit(
    byte: int, bit: int
) -> None:
    body = bytearray(uniform().body)
    body[byte % len(body)] ^= 1 << bit
    entry = build_entry(EntryKind.DATA, 5, 1, POSITION, 0, [body])
    try:
        batch = decode_batch(entry.body)
    except CorruptBatchError:
        return
    assert is_proved(entry) == is_right(entry, batch)


@pytest.mark.parametrize("properties", [b"", b"TAGS\x01y\x02", b"KEYS\x01one two\x02x\x01y\x02"])
def test_equal_properties_are_proved(properties: bytes) -> None:
    messages = [stage("orders", b"body", properties) for _ in range(16)]
    entry = entry_of([QueueRun("orders", 0, 0, messages)])
    assert is_proved(entry)


RECORDS = HEADER_SIZE
FIRST_SIZE = 91 + len("orders") + len(b"one") + len(b"TAGS\x01x\x02KEYS\x01k1 k2\x02")
ALL_SIZE = FIRST_SIZE + 2 * (91 + len("bills")) + len(b"twothree")


@pytest.mark.parametrize(
    ("flipped", "byte", "what"),
    [
        (RECORDS + 3, RECORDS, "record"),
        (RECORDS + 15, RECORDS, "topic, queue, offset and position"),
        (RECORDS + 27, RECORDS, "topic, queue, offset and position"),
        (RECORDS + 35, RECORDS, "topic, queue, offset and position"),
        (RECORDS + 88, RECORDS, "record"),
        (RECORDS + FIRST_SIZE + 88, RECORDS + FIRST_SIZE, "record"),
        (RECORDS + ALL_SIZE + 7, RECORDS + ALL_SIZE, "queue row"),
        (RECORDS + ALL_SIZE + 20 + 11, RECORDS + ALL_SIZE + 20, "queue row"),
        (RECORDS + ALL_SIZE + 19, RECORDS + ALL_SIZE, "queue row"),
        (RECORDS + ALL_SIZE + 60, RECORDS + ALL_SIZE + 60, "key rows"),
        (RECORDS + ALL_SIZE + 60 + 15, RECORDS + ALL_SIZE + 60, "key rows"),
    ],
)
def test_a_batch_that_contradicts_itself_is_told_with_place_and_reason(
    flipped: int, byte: int, what: str
) -> None:
    data = bytearray(example().data)
    data[flipped] ^= 1
    entry = build_entry(EntryKind.DATA, 5, 1, POSITION, 0, [data[HEADER_SIZE:]])
    with pytest.raises(BatchMismatchError) as caught:
        check_batch(entry, decode_batch(entry.body))
    assert (caught.value.byte, caught.value.reason) == (byte, what)
