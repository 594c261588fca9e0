"""``spark.read.format("dledger").load(path)``: snapshots of replicas as tables.

For options and columns see :mod:`spark.datasource.options` and :mod:`spark.datasource.schemas`.
Tasks read the snapshots themselves, and give Arrow batches to Spark. The driver reads manifests and
a few rows of the entry index. If there are several snapshots of one replica below the path, the
newest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark.datasource.log_ranges import LogEntry, Piece, cut
from spark.datasource.message_columns import MessageColumns, UnusualError
from spark.datasource.options import ReadOptions, View, parse_options
from spark.datasource.schemas import arrow_schema, has_bodies, row_columns, spark_schema
from spark.datasource.snapshot_stream import furthest, stream_ends, stream_parts
from spark.datasource.snapshots import Snapshot, find_snapshots, split_paths, whole_snapshots
from spark.datasource.state_views import STATE_VIEWS, state_rows
from spark.datasource.view_rows import (
    Rows,
    data_entries,
    entry_rows,
    index_rows,
    key_files,
    key_rows,
    message_rows,
    queue_lengths,
    queue_rows,
)
from spark.errors import OptionError
from store.state.machine_state import QueueLength
from store.verify.log.batch_columns import TopicNumbers

BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20
MESSAGE_BYTES = 4 << 20
# The index of an entry takes few bytes beside the entry itself.
INDEX_RANGE_FACTOR = 16


@dataclass
class Part(InputPartition):
    """What one task reads: a piece of the log, a queue, a file of the key index, or a state.

    Only the fields that it needs are set.
    """

    piece: Piece | None = None
    snapshot: Snapshot | None = None
    queue: QueueLength | None = None
    path: str | None = None


class DledgerDataSource(DataSource):
    """Registered as ``dledger``; see :func:`spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "dledger"

    def schema(self) -> str:
        return spark_schema(parse_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - passed by name
        return Reader(split_paths(self.options), parse_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's
        return StreamReader(split_paths(self.options), parse_options(self.options))


class Reader(DataSourceReader):
    """One read of everything that the manifests cover.

    It does not take Spark's filters (``pushFilters``). Up to 4.3, PySpark keeps the filters of a
    reader with the relation, and every query of the same DataFrame or view shares them. So a join
    with itself would read nothing, and the next query without a filter would read only the filtered
    rows. Options limit the relation itself.
    """

    def __init__(self, roots: list[str], options: ReadOptions) -> None:
        self._roots = roots
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return plan_parts(wanted(self._roots, self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a directory of snapshots: each batch has what newer snapshots add.

    An offset has the next entry of each replica: ``{"broker-a/n0": 17}``. A replica that the
    options name may come later.
    """

    def __init__(self, roots: list[str], options: ReadOptions) -> None:
        if options.view not in {View.ENTRIES, View.MESSAGES, View.INDEX}:
            raise OptionError(f"option view={options.view}: this view cannot be streamed")
        self._roots = roots
        self._options = options
        self._available: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._available = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002 - Spark's
        return furthest(start, self._ends() if self._available is None else self._available)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        snapshots = whole_snapshots(self._roots)
        for snapshot, first, last in stream_parts(snapshots, self._options, start, end):
            options = replace(self._options, from_index=first, to_index=last)
            parts += plan_parts([snapshot], options)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: snapshots are not deleted."""

    def _ends(self) -> dict[str, int]:
        return stream_ends(whole_snapshots(self._roots), self._options)


def wanted(roots: list[str], options: ReadOptions) -> list[Snapshot]:
    """The snapshots that the options ask for.

    Raises :class:`~spark.errors.OptionError` for a replica that is not there.
    """
    snapshots = find_snapshots(roots)
    names = {name for snapshot in snapshots for name in (snapshot.name, snapshot.manifest.node)}
    missing = sorted(options.replicas - names)
    if missing:
        there = ", ".join(snapshot.name for snapshot in snapshots)
        raise OptionError(f"option replica={missing[0]}: there are {there}")
    return [snapshot for snapshot in snapshots if options.wants(snapshot.name)]


def plan_parts(snapshots: Sequence[Snapshot], options: ReadOptions) -> list[InputPartition]:
    parts: list[InputPartition] = []
    size = options.range_bytes * (INDEX_RANGE_FACTOR if options.view is View.INDEX else 1)
    for snapshot in snapshots:
        match options.view:
            case View.CONSUMEQUEUE:
                parts += [
                    Part(snapshot=snapshot, queue=queue)
                    for queue in queue_lengths(snapshot)
                    if options.topic in {None, queue.topic}
                ]
            case View.KEYINDEX:
                parts += [Part(snapshot=snapshot, path=path) for path in key_files(snapshot)]
            case view if view in STATE_VIEWS:
                parts.append(Part(snapshot=snapshot))
            case _:
                pieces = cut(snapshot, options.from_index, options.to_index, size)
                parts += [Part(piece=piece) for piece in pieces]
    return parts


def read_part(partition: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Part):
        return
    if partition.piece is not None and options.view is View.MESSAGES:
        yield from message_batches(partition.piece, options)
        return
    body = len(row_columns(options)) - 1 if has_bodies(options) else None
    rows = part_rows(partition, options)
    gathered: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        gathered.append(row)
        size += 0 if body is None else len(row[body])
        if len(gathered) == BATCH_ROWS or size >= BATCH_BYTES:
            yield to_batch(gathered, options)
            gathered, size = [], 0
    if gathered:
        yield to_batch(gathered, options)


def message_batches(piece: Piece, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The messages of a piece, some entries at a time, as columns if possible."""
    topics = TopicNumbers()
    gathered: list[LogEntry] = []
    size = 0
    for entry in data_entries(piece):
        gathered.append(entry)
        size += entry.size
        if size >= MESSAGE_BYTES:
            yield from messages_batch(piece.snapshot.name, gathered, topics, options)
            gathered, size = [], 0
    if gathered:
        yield from messages_batch(piece.snapshot.name, gathered, topics, options)


def messages_batch(
    replica: str, entries: Sequence[LogEntry], topics: TopicNumbers, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(options)
    try:
        found = MessageColumns(replica, entries, topics, options.topic)
        if not len(found):
            return
        arrays = [found.column(field.name, field.type) for field in schema]
    except UnusualError:
        rows = list(message_rows(replica, entries, options))
        if rows:
            yield to_batch(rows, options)
        return
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def part_rows(part: Part, options: ReadOptions) -> Rows:
    if part.piece is not None:
        match options.view:
            case View.INDEX:
                return index_rows(part.piece)
            case _:
                return entry_rows(part.piece, options)
    if part.snapshot is not None and part.queue is not None:
        return queue_rows(part.snapshot, part.queue)
    if part.snapshot is not None and part.path is not None:
        return key_rows(part.snapshot, part.path)
    if part.snapshot is not None and options.view in STATE_VIEWS:
        return state_rows(part.snapshot, options.view)
    return iter(())


def to_batch(rows: list[tuple[Any, ...]], options: ReadOptions) -> pa.RecordBatch:
    schema = arrow_schema(options)
    found = dict(zip(dict(row_columns(options)), zip(*rows, strict=True), strict=True))
    arrays = [pa.array(found[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
