"""Reads the rows of each view, as tuples in the order of its columns."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from crc32c import crc32c

from spark.datasource.log_ranges import IndexRows, LogEntry, Piece, read_entries
from spark.datasource.options import ReadOptions
from spark.datasource.schemas import has_bodies
from spark.datasource.snapshot_state import snapshot_state
from spark.datasource.snapshots import Snapshot
from spark.errors import ReplicaError
from store.errors import CorruptBatchError, CorruptRecordError, DamagedError
from store.index.key_file import ROW, read_file, read_page
from store.log.entry import HEADER_SIZE, KINDS
from store.log.layout import parse_segment_name, segment_name
from store.message.batch import QUEUE_ROW, decode_batch
from store.message.record import MessageRecord, iter_records
from store.state.machine_state import QueueLength
from store.verify.files.row_files import RowFiles

Rows = Iterator[tuple[Any, ...]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS_AT_ONCE = 1 << 16


def entry_rows(piece: Piece, options: ReadOptions) -> Rows:
    for entry in read_entries(piece):
        is_whole = crc32c(entry.body) == entry.body_crc
        row = (
            piece.snapshot.name,
            entry.index,
            entry.term,
            entry.kind,
            entry.position,
            entry.size,
            entry.chain_crc,
            entry.body_crc,
            is_whole,
            entry.path,
        )
        yield (*row, entry.body) if has_bodies(options) else row


def data_entries(piece: Piece) -> Iterator[LogEntry]:
    """The data entries of a piece.

    Raises :class:`~spark.errors.ReplicaError` for an entry whose CRC is wrong.
    """
    for entry in read_entries(piece):
        if entry.kind != "data":
            continue
        if crc32c(entry.body) != entry.body_crc:
            raise ReplicaError(
                f"{entry.path}, byte {entry.byte + HEADER_SIZE}: the body of entry {entry.index} "
                "does not have the CRC that its header states"
            )
        yield entry


def message_rows(replica: str, entries: Sequence[LogEntry], options: ReadOptions) -> Rows:
    """The messages of some entries.

    Raises :class:`~spark.errors.ReplicaError` for an entry whose records are wrong.
    """
    bodies = has_bodies(options)
    for entry in entries:
        for record in records(entry):
            if options.topic is not None and record.topic != options.topic:
                continue
            row = message_row(replica, entry.index, record)
            yield (*row, record.body) if bodies else row


def records(entry: LogEntry) -> Iterator[MessageRecord]:
    try:
        yield from iter_records(decode_batch(entry.body).records)
    except (CorruptBatchError, CorruptRecordError) as error:
        raise ReplicaError(
            f"{entry.path}, byte {entry.byte + HEADER_SIZE}: entry {entry.index}: {error}"
        ) from error


def message_row(replica: str, index: int, record: MessageRecord) -> tuple[Any, ...]:
    properties = record.property_map
    return (
        replica,
        index,
        record.position,
        record.size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        f"{record.store_host.hex()}{record.position:016x}".upper(),
        properties.get("UNIQ_KEY"),
        properties.get("TAGS"),
        properties.get("KEYS"),
        record.flag,
        record.sys_flag,
        to_datetime(record.born_timestamp),
        host(record.born_host),
        to_datetime(record.store_timestamp),
        host(record.store_host),
        record.reconsume_times,
        record.prepared_position,
        len(record.body),
        record.body_crc,
        list(properties.items()),
    )


def to_datetime(time_ms: int) -> datetime | None:
    """A time for Arrow; ``None`` outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def host(packed: bytes) -> str:
    """``address:port`` of a host of 8 or 20 bytes."""
    address, port = packed[:-4], int.from_bytes(packed[-4:], "big")
    if len(address) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"


def index_rows(piece: Piece) -> Rows:
    found = IndexRows(piece.snapshot.open(), piece.snapshot)
    for row in found.rows(piece.first, piece.last):
        kind = KINDS.get(row.magic)
        yield (
            piece.snapshot.name,
            row.entry_index,
            row.term,
            str(row.magic) if kind is None else kind.name.lower(),
            row.position,
            row.size,
            found.locate(row.entry_index)[0],
        )


def queue_lengths(snapshot: Snapshot) -> list[QueueLength]:
    """The queues of a snapshot and the offsets that they have, by its checkpoint.

    Raises :class:`~spark.errors.ReplicaError` if the checkpoint cannot be read.
    """
    state = snapshot_state(snapshot)
    return [] if state is None else list(state.machine.queues)


def queue_rows(snapshot: Snapshot, queue: QueueLength) -> Rows:
    directory = f"{snapshot.path}/consumequeue/{queue.topic}/{queue.queue_id}"
    files = RowFiles(snapshot.open(), directory, QUEUE_ROW.size)
    for start in range(queue.first_offset, queue.end_offset, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, queue.end_offset - start)
        data = files.read(start, count)
        if len(data) < count * QUEUE_ROW.size:
            path, byte = files.locate(start + len(data) // QUEUE_ROW.size)
            raise ReplicaError(
                f"{path}, byte {byte}: the file ends before row {queue.end_offset - 1} of the queue"
            )
        for place, (position, size, code) in enumerate(QUEUE_ROW.iter_unpack(data)):
            offset = start + place
            path = files.locate(offset)[0]
            yield snapshot.name, queue.topic, queue.queue_id, offset, position, size, code, path


def key_files(snapshot: Snapshot) -> list[str]:
    """The files of the key index below the end of the snapshot."""
    fs, directory = snapshot.open(), f"{snapshot.path}/keyindex"
    starts = map(parse_segment_name, fs.list_directory(directory) if fs.exists(directory) else [])
    end = snapshot.manifest.end_position
    return [
        f"{directory}/{segment_name(start)}"
        for start in starts
        if start is not None and start < end
    ]


def key_rows(snapshot: Snapshot, path: str) -> Rows:
    fs = snapshot.open()
    try:
        said = read_file(fs, path)
        file = fs.open(path, writable=False)
        try:
            for page in range(said.page_count):
                for key_hash, position, seconds in ROW.iter_unpack(read_page(file, said, page)):
                    yield snapshot.name, key_hash, position, to_datetime(seconds * 1000), path
        finally:
            file.close()
    except DamagedError as error:
        raise ReplicaError(str(error)) from error
