"""The body of a DATA entry: a batch of message records, their derived rows, and commands.

Big-endian, in this order::

    records        RocketMQ records back to back, grouped by queue into runs
    queue rows     20 bytes a record, in the same order: i64 position of the record in the commit
                   log, i32 size, i64 tags code; exactly what the ConsumeQueue stores
    key rows       16 bytes each: u32 key hash, i64 position of the record, u32 store time in s
    runs           each: i64 first queue offset, i32 queue id, i32 records, u8 topic length, topic
    commands       a msgpack array of broker commands, or nothing
    footer         24 bytes: u32 size of the records, u32 records, u32 key rows,
                   u32 size of the runs, u32 size of the commands, u32 version (1)

A *run* is the consecutive records of one queue. The leader makes the rows once. Every replica
appends them to its derived files unchanged, and reads no record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from store.errors import CorruptBatchError
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE
from store.message.record import PENDING_HEAD, RECORD_MAGIC, STORED, PendingMessage
from store.message.twins import compiled_or

BATCH_VERSION = 1
QUEUE_ROW = struct.Struct(">qiq")
KEY_ROW = struct.Struct(">IqI")
RUN_HEADER = struct.Struct(">qiiB")
FOOTER = struct.Struct(">IIIIII")

# Getters, so that sums over these fields need no loop in Python.
_SIZE = itemgetter(PendingMessage._fields.index("size"))
_KEY_HASHES = itemgetter(PendingMessage._fields.index("key_hashes"))


class QueueRun(NamedTuple):
    """Messages of one queue, in order; the first gets ``first_offset``."""

    topic: str
    queue_id: int
    first_offset: int
    messages: list[PendingMessage]


PackedRuns: TypeAlias = tuple[list[Bytes], bytes, bytes, bytes]
"""The records of runs, as parts that follow each other; rows; key rows; headers of the runs."""


class QueueRunHeader(NamedTuple):
    """The header of one run, and the number of its first row."""

    topic: str
    queue_id: int
    first_offset: int
    row_count: int
    first_row: int


_TOPIC = itemgetter(QueueRunHeader._fields.index("topic"))


class Batch(NamedTuple):
    """A decoded body. The views share its bytes."""

    records: memoryview
    rows: memoryview
    key_rows: memoryview
    runs: list[QueueRunHeader]
    commands: memoryview

    @property
    def topics(self) -> Sequence[str]:
        """Those of its messages, each once."""
        return [*dict.fromkeys(map(_TOPIC, self.runs))]

    def rows_of(self, run: QueueRunHeader) -> memoryview:
        """The rows of a run."""
        first = run.first_row * QUEUE_ROW.size
        return self.rows[first : first + run.row_count * QUEUE_ROW.size]


def batch_size(topics: Iterable[str], message_bytes: int, commands: Bytes) -> int:
    """The exact size of a body in bytes. It does not depend on the position.

    ``topics``: one for each run. ``message_bytes``: :func:`pending_bytes` of all messages.
    """
    size = FOOTER.size + message_bytes + len(commands)
    for topic in topics:
        size += RUN_HEADER.size + len(topic.encode())
    return size


def pending_bytes(messages: Sequence[PendingMessage]) -> int:
    """The bytes that the records and rows of ``messages`` take in a body."""
    records: int = sum(map(_SIZE, messages))
    keys: int = sum(map(len, map(_KEY_HASHES, messages)))
    return records + QUEUE_ROW.size * len(messages) + KEY_ROW.size * keys


def encode_batch(
    position: int,
    store_timestamp: int,
    store_host: bytes,
    runs: list[QueueRun],
    commands: Bytes,
) -> list[Bytes]:
    """The parts of the body of an entry at ``position``. ``store_host``: IPv4 and port."""
    stored = STORED.pack(store_timestamp, store_host)
    start = position + HEADER_SIZE
    records, rows, key_rows, headers = pack_runs(runs, start, stored, store_timestamp // 1000)
    footer = FOOTER.pack(
        sum(map(len, records)),
        len(rows) // QUEUE_ROW.size,
        len(key_rows) // KEY_ROW.size,
        len(headers),
        len(commands),
        BATCH_VERSION,
    )
    return [*records, rows, key_rows, headers, commands, footer]


def pack_runs(runs: list[QueueRun], position: int, stored: bytes, store_seconds: int) -> PackedRuns:
    """The parts of an entry that come of its messages.

    ``position``: of the first record. ``stored``: STORETIMESTAMP and STOREHOST as in the records.
    """
    return _pack_runs(runs, position, stored, store_seconds) or pack_runs_in_python(
        runs, position, stored, store_seconds
    )


def pack_runs_in_python(
    runs: list[QueueRun],
    position: int,
    stored: bytes,
    store_seconds: int,
    /,
) -> PackedRuns:
    """See :func:`pack_runs`. It copies no body."""
    parts: list[Bytes] = []
    rows: list[bytes] = []
    key_rows: list[bytes] = []
    headers: list[bytes] = []
    pack_head = PENDING_HEAD.pack
    pack_row, add_row = QUEUE_ROW.pack, rows.append
    pack_key, add_key = KEY_ROW.pack, key_rows.append
    for topic, queue_id, first_offset, messages in runs:
        topic_bytes = topic.encode()
        headers += (
            RUN_HEADER.pack(first_offset, queue_id, len(messages), len(topic_bytes)),
            topic_bytes,
        )
        topic_part = bytes((len(topic_bytes),)) + topic_bytes
        offset = first_offset
        properties_size, between = -1, b""
        for size, body, properties, flag, born, tried, body_crc, tags_code, key_hashes in messages:
            if len(properties) != properties_size:
                properties_size = len(properties)
                between = topic_part + properties_size.to_bytes(2, "big")
            parts += (
                pack_head(
                    size,
                    RECORD_MAGIC,
                    body_crc,
                    queue_id,
                    flag,
                    offset,
                    position,
                    born,
                    stored,
                    tried,
                    len(body),
                ),
                body,
                between,
                properties,
            )
            add_row(pack_row(position, size, tags_code))
            for key in key_hashes:
                add_key(pack_key(key, position, store_seconds))
            position += size
            offset += 1
    return parts, b"".join(rows), b"".join(key_rows), b"".join(headers)


_Pack: TypeAlias = Callable[[list[QueueRun], int, bytes, int], PackedRuns | None]
"""None for records so large that it is cheaper to copy them once only, as the entry is made."""


def _pack_sample(pack: _Pack) -> object:
    message = PendingMessage(110, b"body", b"TAGS\x01a\x02", 1, bytes(20), bytes(12), 2, 3, (4, 5))
    runs = [QueueRun("material", 6, 7, [message, message]), QueueRun("other", 8, 9, [])]
    packed = pack(runs, 8, bytes(16), 9)
    return packed and (b"".join(packed[0]), *packed[1:])


_twin: _Pack = pack_runs_in_python
_pack_runs = compiled_or(_twin, "pack_runs", _pack_sample)


def decode_batch(body: Bytes) -> Batch:
    """Splits a body into its parts. Raises :class:`CorruptBatchError` if they do not add up."""
    view = memoryview(body)
    if len(view) < FOOTER.size:
        raise CorruptBatchError(f"{len(view)} bytes are fewer than the footer of a batch")
    records_size, count, key_count, runs_size, commands_size, version = FOOTER.unpack_from(
        view, len(view) - FOOTER.size
    )
    if version != BATCH_VERSION:
        raise CorruptBatchError(f"batch version {version} is not {BATCH_VERSION}")
    rows_end = records_size + QUEUE_ROW.size * count
    keys_end = rows_end + KEY_ROW.size * key_count
    runs_end = keys_end + runs_size
    commands_end = runs_end + commands_size
    if commands_end + FOOTER.size != len(view):
        raise CorruptBatchError(
            f"the parts of the batch make {commands_end + FOOTER.size} bytes, not {len(view)}"
        )
    return Batch(
        view[:records_size],
        view[records_size:rows_end],
        view[rows_end:keys_end],
        _decode_runs(bytes(view[keys_end:runs_end]), count),
        view[runs_end:commands_end],
    )


def _decode_runs(data: bytes, record_count: int) -> list[QueueRunHeader]:
    runs: list[QueueRunHeader] = []
    add, make = runs.append, tuple.__new__  # a quarter of the time is the constructor otherwise
    place = row = 0
    before = topic = None
    while place < len(data):
        try:
            offset, queue_id, count, topic_size = RUN_HEADER.unpack_from(data, place)
            place += RUN_HEADER.size
            topic_bytes = data[place : place + topic_size]
            if topic_bytes != before:
                before, topic = topic_bytes, str(topic_bytes, "utf-8")
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptBatchError(f"the header of run {len(runs)} is wrong: {error}") from None
        place += topic_size
        if count <= 0 or offset < 0 or place > len(data):
            raise CorruptBatchError(f"the header of run {len(runs)} is impossible")
        add(make(QueueRunHeader, (topic, queue_id, offset, count, row)))
        row += count
    if row != record_count:
        raise CorruptBatchError(f"the runs name {row} records, the footer {record_count}")
    return runs
