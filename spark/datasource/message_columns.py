"""The messages of many entries as Arrow columns, a whole column at a time.

Arrow cuts a column of text out of the entries' bytes: every second element of an array over all
bytes is text of the column. So no text becomes a Python object.
:mod:`spark.datasource.view_rows` reads unusual messages: records that are not where the rows of the
batch say, hosts of IPv6, two properties of one name, bytes that are not UTF-8.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark.datasource.log_ranges import LogEntry
from store.log.entry import HEADER_SIZE
from store.message.properties import KEYS, PAIR_END, TAGS, UNIQUE_KEY
from store.verify.log.batch_columns import TopicNumbers
from store.verify.log.byte_columns import Numbers, Octets, gather, texts_after
from store.verify.log.record_columns import ROWS, RecordColumns, cut_bodies

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000
_END_MS = int((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH).total_seconds() + 1) * 1000
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), "V2")
_NAME_SIZE = 8


class UnusualError(Exception):
    """These messages cannot be read as columns. They must be read one by one."""


class MessageColumns:
    """The columns of the messages in ``entries``, data entries whose bodies have their CRC.

    The constructor and :meth:`column` raise :class:`UnusualError`.
    """

    def __init__(
        self, replica: str, entries: Sequence[LogEntry], topics: TopicNumbers, topic: str | None
    ) -> None:
        self._replica = replica
        self._data = b"".join([entry.body for entry in entries])
        self._octets: Octets = np.frombuffer(self._data, np.uint8)
        sizes = np.array([len(entry.body) for entry in entries])
        ends = np.cumsum(sizes)
        begins = ends - sizes
        parts = cut_bodies(self._octets, begins, ends)
        if parts is None or not parts.counts.any():
            raise UnusualError
        spans = zip(parts.rows_at.tolist(), parts.keys_at.tolist(), strict=True)
        rows = np.frombuffer(b"".join([self._data[begin:end] for begin, end in spans]), ROWS)
        positions = np.array([entry.position for entry in entries]) + HEADER_SIZE
        read = RecordColumns.read(self._octets, begins, parts, rows, positions - begins)
        if read is None:
            raise UnusualError
        self._messages = read
        self._indexes = np.repeat(np.array([entry.index for entry in entries]), parts.counts)
        self._topics = topics
        self._topic_of = self._number_topics()
        if topic is not None:
            wanted = np.array([name == topic for name in topics.names], bool)[self._topic_of]
            self._messages = read.only(wanted)
            self._indexes, self._topic_of = self._indexes[wanted], self._topic_of[wanted]

    def __len__(self) -> int:
        return len(self._indexes)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """The column of that name in the view ``messages``."""
        made = _COLUMNS[name](self)
        return made if isinstance(made, pa.Array) else pa.array(made, kind)

    # --- one column each

    def _number_topics(self) -> Numbers:
        sizes = self._messages.topic_sizes
        width = int(sizes.max()) + 8 & ~7
        names = texts_after(self._octets, self._messages.body_ends, sizes + 1, width)
        try:
            numbers = self._topics.numbers_of(names.view(f"V{width}").ravel().tolist())
        except UnicodeDecodeError as error:
            raise UnusualError from error
        return np.array(numbers, np.int64)

    def _head(self, name: str, dtype: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._messages.heads[name].astype(dtype)
        return found

    def _message_ids(self) -> pa.Array:
        octets = np.empty((len(self), 16), np.uint8)
        octets[:, :8] = _octets_of(self._messages.heads["store_host"])
        octets[:, 8:] = self._messages.positions.astype(">i8").view(np.uint8).reshape(-1, 8)
        return _texts_of(_HEX[octets].view(np.uint8).tobytes(), 32 * np.arange(len(self) + 1))

    def _hosts(self, name: str) -> pa.Array:
        packed = _octets_of(self._messages.heads[name]).view(">u8").ravel()
        found, numbers = np.unique(packed, return_inverse=True)
        return pa.array([_host(int(one)) for one in found]).take(pa.array(numbers))

    def _timestamps(self, name: str) -> pa.Array:
        times = self._messages.heads[name].astype(np.int64)
        outside = (times < _FIRST_MS) | (times >= _END_MS)
        times[outside] = 0
        kind = pa.timestamp("us", tz="UTC")
        return pa.array(times * 1000, pa.int64(), mask=outside).cast(kind)

    def _bodies(self) -> pa.Array:
        ends = self._messages.body_ends
        return _cut_out(self._data, ends - self._messages.heads["length"], ends)

    @cached_property
    def _pairs(self) -> _Pairs:
        messages = self._messages
        return _Pairs(self._octets, messages.properties, messages.ends)

    def _property(self, name: bytes) -> pa.Array:
        return self._pairs.values(self._data, name)

    def _maps(self) -> pa.Array:
        return self._pairs.maps(self._data)


class _Pairs:
    """The pairs of name and value of all properties: the message of each pair, and the places of
    its name and value."""

    def __init__(self, octets: Octets, begins: Numbers, ends: Numbers) -> None:
        self._count = len(begins)
        # All property strings, one behind the other. Each gets its last separator, if it lacks it.
        sizes = ends - begins + 1
        firsts = np.cumsum(sizes) - sizes
        texts = _cut_out(octets.data, begins, ends + 1).buffers()[2]
        flat = np.frombuffer(texts, np.uint8)[: int(sizes.sum())].copy()
        flat[firsts + sizes - 1] = PAIR_END[0]
        marks = np.flatnonzero(flat <= PAIR_END[0])
        marks = marks[flat[marks] > 0]
        is_end = flat[marks] == PAIR_END[0]
        stops = np.flatnonzero(is_end)
        # In a pair, the first separator behind a name counts.
        befores = np.append(-1, stops[:-1])
        pairs = np.flatnonzero(stops - befores > 1)
        begin = np.append(-1, marks[stops[:-1]])[pairs] + 1
        middle, end = marks[befores[pairs] + 1], marks[stops[pairs]]
        self.of = np.searchsorted(firsts, begin, "right") - 1
        shift = (begins - firsts)[self.of]
        self.names = (begin + shift, middle + shift)
        self.texts = (middle + 1 + shift, end + shift)
        self._starts = gather(flat, begin, _NAME_SIZE).view("<u8").ravel()
        self._check_names(octets)

    def _check_names(self, octets: Octets) -> None:
        """Raises :class:`UnusualError` if a message may have two properties of one name."""
        begin, end = self.names
        sizes = end - begin
        short = np.minimum(sizes, _NAME_SIZE).astype(np.uint64)
        kept = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(8) * (np.uint64(8) - short))
        self._starts &= np.where(short > 0, kept, np.uint64(0))
        # Beginning, end and size of a name tell it from nearly all other names.
        tails = gather(octets, end - _NAME_SIZE, _NAME_SIZE).view("<u8").ravel()
        tails = np.where(sizes < _NAME_SIZE, np.uint64(0), tails)
        with np.errstate(over="ignore"):
            mixed = self._starts * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= (tails + sizes.astype(np.uint64)) * np.uint64(0xC2B2AE3D27D4EB4F)
            mixed ^= self.of.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
        mixed.sort()
        if (mixed[1:] == mixed[:-1]).any():
            raise UnusualError

    def values(self, data: bytes, name: bytes) -> pa.Array:
        """By message, the value of one property; null if it has none."""
        wanted = int.from_bytes(name[:_NAME_SIZE], "little")
        sizes = self.names[1] - self.names[0]
        found = np.flatnonzero((self._starts == np.uint64(wanted)) & (sizes == len(name)))
        texts = _as_text(_cut_out(data, self.texts[0][found], self.texts[1][found]))
        places = np.full(self._count, -1)
        places[self.of[found]] = np.arange(len(found))
        return texts.take(pa.array(places, mask=places < 0))

    def maps(self, data: bytes) -> pa.Array:
        names, texts = (_as_text(_cut_out(data, *span)) for span in (self.names, self.texts))
        edges = np.searchsorted(self.of, np.arange(self._count + 1))
        return pa.MapArray.from_arrays(pa.array(edges, pa.int32()), names, texts)


def _octets_of(fields: NDArray[np.void]) -> Octets:
    return np.ascontiguousarray(fields).view(np.uint8).reshape(-1, fields.itemsize)


def _host(packed: int) -> str:
    address = socket.inet_ntop(socket.AF_INET, (packed >> 32).to_bytes(4, "big"))
    return f"{address}:{packed & 0xFFFFFFFF}"


def _texts_of(data: bytes, edges: Numbers) -> pa.Array:
    offsets = pa.py_buffer(edges.astype(np.int32))
    return pa.StringArray.from_buffers(len(edges) - 1, offsets, pa.py_buffer(data))


def _cut_out(data: bytes | memoryview, begins: Numbers, ends: Numbers) -> pa.Array:
    """The bytes from each begin to its end, as binary elements. They must be in order."""
    edges = np.empty(2 * len(begins) + 1, np.int32)
    edges[:-1:2], edges[1::2] = begins, ends
    edges[-1] = edges[-2] if len(begins) else 0
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    every = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
    return every.take(pa.array(np.arange(0, len(edges) - 1, 2)))


def _as_text(binary: pa.Array) -> pa.Array:
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UnusualError from error


_COLUMNS: dict[str, Callable[[MessageColumns], pa.Array | NDArray[np.int64]]] = {
    "replica": lambda of: pa.repeat(of._replica, len(of)),
    "index": lambda of: of._indexes,
    "position": lambda of: of._messages.positions,
    "size": lambda of: of._head("size", "i4"),
    "topic": lambda of: pa.array(of._topics.names, pa.string()).take(pa.array(of._topic_of)),
    "queue_id": lambda of: of._head("queue", "i4"),
    "queue_offset": lambda of: of._head("offset", "i8"),
    "msg_id": lambda of: of._message_ids(),
    "unique_key": lambda of: of._property(UNIQUE_KEY),
    "tags": lambda of: of._property(TAGS),
    "keys": lambda of: of._property(KEYS),
    "flag": lambda of: of._head("flag", "i4"),
    "sys_flag": lambda of: of._head("flags", "i4"),
    "born_timestamp": lambda of: of._timestamps("born"),
    "born_host": lambda of: of._hosts("born_host"),
    "store_timestamp": lambda of: of._timestamps("stored"),
    "store_host": lambda of: of._hosts("store_host"),
    "reconsume_times": lambda of: of._head("tried", "i4"),
    "prepared_position": lambda of: of._head("prepared", "i8"),
    "body_size": lambda of: of._head("length", "i4"),
    "body_crc": lambda of: of._head("crc", "i8"),
    "properties": lambda of: of._maps(),
    "body": lambda of: of._bodies(),
}
