"""Checks that the body of a DATA entry agrees with itself: records, rows, key rows, runs."""

from __future__ import annotations

import zlib

from store.errors import CorruptRecordError, StoreError
from store.log.entry import HEADER_SIZE, Entry
from store.message.batch import KEY_ROW, QUEUE_ROW, Batch
from store.message.record import (
    HEAD,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    V6_HOSTS,
    MessageRecord,
    decode_record,
    derive,
    key_prefix,
)
from store.message.scheduled_topics import SCHEDULED_TOPICS, row_code
from store.verify.log.batch_columns import TopicNumbers, read_columns

COLUMNS_MIN = 128
"""From so many messages of one entry on it is faster to look at them column by column."""
# A damaged time must not stop the check: no key row of a leader has one above.
_U32 = 0xFFFFFFFF


class BatchMismatchError(StoreError):
    """A batch contradicts itself. ``byte`` counts from the start of the entry."""

    def __init__(self, byte: int, what: str, *, expected: object, found: object) -> None:
        self.byte = byte
        self.what = what
        self.expected = expected
        self.found = found
        super().__init__(f"byte {byte}: {what}: expected {expected}, found {found}")


def check_batch(entry: Entry, batch: Batch) -> None:
    """Recomputes rows, key rows and checksums from the records.

    Raises :class:`BatchMismatchError` for the first thing that differs.
    """
    if len(batch.rows) >= COLUMNS_MIN * QUEUE_ROW.size and (
        read_columns(entry.data, entry.position, [entry], TopicNumbers()) is not None
    ):
        return
    if not is_consistent(entry, batch):
        check_each(entry, batch)


def check_each(entry: Entry, batch: Batch) -> None:
    """The check record by record: slower, and tells what is wrong."""
    records, rows = batch.records, batch.rows
    base = entry.position + HEADER_SIZE
    key_rows: list[bytes] = []
    place = 0
    for run in batch.runs:
        prefix = key_prefix(run.topic)
        for number in range(run.count):
            at = HEADER_SIZE + place
            try:
                record = decode_record(records, place)
            except CorruptRecordError as error:
                raise BatchMismatchError(
                    at, "record", expected="a whole record", found=error
                ) from error
            found = (record.topic, record.queue_id, record.queue_offset, record.position)
            expected = (run.topic, run.queue_id, run.first_offset + number, base + place)
            if found != expected:
                raise BatchMismatchError(
                    at, "topic, queue, offset and position", expected=expected, found=found
                )
            tags, hashes = derive(prefix, record.properties)
            if run.topic in SCHEDULED_TOPICS:
                tags = row_code(
                    run.topic, run.queue_id, record.properties, record.store_timestamp, tags
                )
            _check_row(batch, run.first_row + number, record, tags)
            seconds = record.store_timestamp // 1000 & _U32
            key_rows += [KEY_ROW.pack(key, base + place, seconds) for key in hashes]
            place += record.size
    if place != len(records):
        raise BatchMismatchError(
            HEADER_SIZE + place, "end of the records", expected=len(records), found=place
        )
    expected_keys = b"".join(key_rows)
    if batch.key_rows != expected_keys:
        raise BatchMismatchError(
            HEADER_SIZE + len(records) + len(rows),
            "key rows",
            expected=expected_keys.hex(),
            found=batch.key_rows.hex(),
        )


def _check_row(batch: Batch, number: int, record: MessageRecord, tags: int) -> None:
    at = number * QUEUE_ROW.size
    found = QUEUE_ROW.unpack_from(batch.rows, at)
    expected = (record.position, record.size, tags)
    if found != expected:
        raise BatchMismatchError(
            HEADER_SIZE + len(batch.records) + at, "queue row", expected=expected, found=found
        )


def is_consistent(entry: Entry, batch: Batch) -> bool:
    """The same check in one pass without objects; false may only mean an unusual record."""
    records = batch.records
    unpack, crc32 = HEAD.unpack_from, zlib.crc32
    total, base = len(records), entry.position + HEADER_SIZE
    key_rows: list[bytes] = []
    rows = QUEUE_ROW.iter_unpack(batch.rows)
    place = 0
    for run in batch.runs:
        topic = run.topic.encode()
        topic_part = bytes((len(topic),)) + topic
        properties_at = len(topic_part) + 2
        prefix = key_prefix(run.topic)
        deferred = run.topic in SCHEDULED_TOPICS
        end_offset = run.first_offset + run.count
        for offset, (row_position, size, row_tags) in zip(
            range(run.first_offset, end_offset), rows, strict=False
        ):
            end = place + size
            if size < RECORD_FIXED_SIZE or end > total:
                return False
            head = unpack(records, place)
            body_start = place + HEAD.size
            stop = body_start + head[14]
            if not body_start <= stop <= end:
                return False
            tail = bytes(records[stop:end])
            properties = tail[properties_at:]
            tags, hashes = derive(prefix, properties) if properties else (0, ())
            if deferred:
                tags = row_code(run.topic, run.queue_id, properties, head[10], tags)
            if (
                head[:2] != (size, RECORD_MAGIC)
                or head[2] != crc32(records[body_start:stop]) & 0x7FFFFFFF
                or head[3] != run.queue_id
                or head[5] != offset
                or not head[6] == row_position == base + place
                or head[7] & V6_HOSTS
                or not tail.startswith(topic_part)
                or int.from_bytes(tail[properties_at - 2 : properties_at], "big") != len(properties)
                or tags != row_tags
            ):
                return False
            seconds = head[10] // 1000 & _U32
            key_rows += [KEY_ROW.pack(key, row_position, seconds) for key in hashes]
            place = end
    return place == total and batch.key_rows == b"".join(key_rows)
