"""The check of one batch, record by record. It is slow, but says what is wrong.

:mod:`store.verify.log.batch_columns` checks many batches at once, but says only that all is right.
"""

from __future__ import annotations

from collections.abc import Sequence

from store.errors import CorruptRecordError, StoreError
from store.log.entry import HEADER_SIZE, Entry
from store.message.batch import KEY_ROW, QUEUE_ROW, Batch, decode_batch
from store.message.record import decode_record
from store.verify.log.batch_columns import BatchColumns, TopicNumbers, plain_columns
from store.verify.log.derivation import key_hashes, row_code

_U32 = 0xFFFFFFFF
"""Masks seconds: a damaged store time must not stop the check."""


class BatchMismatchError(StoreError):
    """A batch contradicts itself. ``byte`` counts from the start of the entry."""

    def __init__(self, byte: int, reason: str, expected: object, found: object) -> None:
        self.byte = byte
        self.reason = reason
        self.expected = expected
        self.found = found
        super().__init__(f"byte {byte}: {reason}: expected {expected}, found {found}")


def checked_columns(entries: Sequence[Entry], topics: TopicNumbers) -> BatchColumns:
    """The columns of entries after the check of each batch.

    Raises :class:`BatchMismatchError` and :class:`~store.errors.CorruptBatchError`.
    """
    batches = [decode_batch(entry.body) for entry in entries]
    for entry, batch in zip(entries, batches, strict=True):
        check_batch(entry, batch)
    return plain_columns(entries, batches, topics)


def check_batch(entry: Entry, batch: Batch) -> None:
    """Derives rows and key rows from the records of a batch, and compares them with the batch's.

    Raises :class:`BatchMismatchError` for the first difference.
    """
    records = batch.records
    base = entry.position + HEADER_SIZE
    rows_at = HEADER_SIZE + len(records)
    rows = QUEUE_ROW.iter_unpack(batch.rows)
    row_at, place = rows_at, 0
    key_rows: list[bytes] = []
    for run in batch.runs:
        for offset in range(run.first_offset, run.first_offset + run.row_count):
            at = HEADER_SIZE + place
            try:
                record = decode_record(records, place)
            except CorruptRecordError as error:
                raise BatchMismatchError(at, "record", "a whole record", error) from error
            found = (record.topic, record.queue_id, record.queue_offset, record.position)
            expected = (run.topic, run.queue_id, offset, base + place)
            if found != expected:
                reason = "topic, queue, offset and position"
                raise BatchMismatchError(at, reason, expected, found)
            stored_ms, properties = record.store_timestamp, record.properties
            code = row_code(run.topic, run.queue_id, properties, stored_ms)
            row, right = next(rows), (base + place, record.size, code)
            if row != right:
                raise BatchMismatchError(row_at, "queue row", right, row)
            seconds = stored_ms // 1000 & _U32
            hashes = key_hashes(run.topic, properties)
            key_rows += [KEY_ROW.pack(key, base + place, seconds) for key in hashes]
            row_at += QUEUE_ROW.size
            place += record.size
    if place != len(records):
        raise BatchMismatchError(HEADER_SIZE + place, "end of the records", len(records), place)
    keys, found_keys = b"".join(key_rows), bytes(batch.key_rows)
    if found_keys != keys:
        at = rows_at + len(batch.rows)
        raise BatchMismatchError(at, "key rows", keys.hex(), found_keys.hex())
