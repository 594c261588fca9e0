"""Checks that the body of a DATA entry agrees with itself: records, rows, key rows, runs."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from store.batch import KEY_ROW, QUEUE_ROW, Batch
from store.entry import HEADER_SIZE, Entry
from store.errors import CorruptRecordError, StoreError
from store.record import (
    HEAD,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    V6_HOSTS,
    MessageRecord,
    decode_record,
    derive,
    key_prefix,
)

ROW_FIELDS = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
HEAD_FIELDS = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("position", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_position", ">i8"),
        ("body_size", ">i4"),
    ]
)
# Below so many records the fixed cost of NumPy exceeds what it saves.
VECTOR_MIN = 12


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
    if len(batch.rows) < VECTOR_MIN * QUEUE_ROW.size or not is_consistent(entry, batch):
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
            _check_row(batch, run.first_row + number, record, tags)
            seconds = record.store_timestamp // 1000
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
    """The check of all records at once. False may only mean that a record is an unusual one."""
    rows = np.frombuffer(batch.rows, ROW_FIELDS)
    sizes = rows["size"].astype(np.int64)
    if sizes.min() < RECORD_FIXED_SIZE:
        return False
    ends = np.cumsum(sizes)
    if ends[-1] != len(batch.records):
        return False
    starts = ends - sizes
    positions = starts + (entry.position + HEADER_SIZE)
    raw = np.frombuffer(batch.records, np.uint8)
    heads = raw[starts[:, None] + np.arange(HEAD.size)].view(HEAD_FIELDS)[:, 0]
    counts = [run.count for run in batch.runs]
    offsets = np.concatenate(
        [np.arange(run.first_offset, run.first_offset + run.count) for run in batch.runs]
    )
    body_sizes = heads["body_size"].astype(np.int64)
    if not (
        (heads["size"] == sizes).all()
        and (heads["magic"] == RECORD_MAGIC).all()
        and not (heads["sys_flag"] & V6_HOSTS).any()
        and (heads["position"] == positions).all()
        and (rows["position"] == positions).all()
        and (heads["queue_id"] == np.repeat([run.queue_id for run in batch.runs], counts)).all()
        and (heads["queue_offset"] == offsets).all()
        and (body_sizes >= 0).all()
        and (body_sizes <= sizes - RECORD_FIXED_SIZE).all()
    ):
        return False
    body_starts = starts + HEAD.size
    spans = zip(
        body_starts.tolist(), (body_starts + body_sizes).tolist(), ends.tolist(), strict=True
    )
    return _bodies_match(batch, heads, list(spans), rows["tags"].tolist())


def _bodies_match(
    batch: Batch,
    heads: NDArray[np.void],
    spans: list[tuple[int, int, int]],
    tags_codes: list[int],
) -> bool:
    """``spans`` are start and end of each body, and end of the record."""
    records = batch.records
    crc32 = zlib.crc32
    crcs, positions = heads["body_crc"].tolist(), heads["position"].tolist()
    stored = heads["store_timestamp"].tolist()
    key_rows: list[bytes] = []
    number = 0
    for run in batch.runs:
        topic = run.topic.encode()
        topic_part = bytes((len(topic),)) + topic
        properties_at = len(topic_part) + 2
        prefix = key_prefix(run.topic)
        for start, stop, end in spans[number : number + run.count]:
            tail = bytes(records[stop:end])
            properties = tail[properties_at:]
            stated = int.from_bytes(tail[properties_at - 2 : properties_at], "big")
            if (
                crc32(records[start:stop]) & 0x7FFFFFFF != crcs[number]
                or not tail.startswith(topic_part)
                or stated != len(properties)
            ):
                return False
            tags, hashes = derive(prefix, properties) if properties else (0, ())
            if hashes:
                position, seconds = positions[number], stored[number] // 1000
                key_rows += [KEY_ROW.pack(key, position, seconds) for key in hashes]
            if tags != tags_codes[number]:
                return False
            number += 1
    return batch.key_rows == b"".join(key_rows)
