"""The check of the batches of many entries at once, column by column.

NumPy compares one field of all messages in a buffer at once. So a message costs little more than
the CRC of its body. Records, runs, rows and key rows are compared with each other. The result is
"all right" or "not proved". In the second case :mod:`store.verify.log.batch_check` decides, record
by record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from store.field_checks import file_name
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE, Entry
from store.message.batch import FOOTER, QUEUE_ROW, RUN_HEADER, Batch
from store.message.scheduled_topics import SCHEDULED_TOPICS
from store.verify.log.byte_columns import (
    Numbers,
    Octets,
    Words,
    columns_of,
    gather,
    texts_after,
)
from store.verify.log.derivation import row_code, topic_crc
from store.verify.log.property_columns import PropertyColumns, derive_columns
from store.verify.log.record_columns import (
    HEADS,
    KEY_ROWS,
    ROWS,
    BodyParts,
    RecordColumns,
    cut_bodies,
)

MESSAGES_MIN = 16
"""For fewer messages, the check record by record is as fast."""

_STORED_AT: int = cast(Mapping[str, Any], HEADS.fields)["stored"][1]
_U64_MAX = (1 << 64) - 1
_RUNS = columns_of(RUN_HEADER, "offset queue count size")


class TopicNumbers:
    """Numbers for the topics of a range, in the order of their first messages."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.impossible: dict[int, ValueError] = {}
        """Topics that cannot name a directory of ConsumeQueues, and why."""
        self._numbers: dict[bytes, int] = {}
        self._of_row: dict[bytes, int] = {}
        self._prefixes: list[int] = []

    def numbers_of(self, rows: list[bytes]) -> list[int]:
        """The numbers of topics. A row has the size of the topic (1 byte), the topic, and zeros.

        Raises ``UnicodeDecodeError``.
        """
        of_row = self._of_row
        for row in set(rows).difference(of_row):
            of_row[row] = self.number(row[1 : row[0] + 1])
        return list(map(of_row.__getitem__, rows))

    def number(self, topic: bytes) -> int:
        """The number of a topic. Raises ``UnicodeDecodeError``."""
        number = self._numbers.get(topic)
        if number is None:
            name = topic.decode()
            number = self._numbers[topic] = len(self.names)
            self.names.append(name)
            self._prefixes.append(topic_crc(topic))
            try:
                file_name(name)
            except ValueError as error:
                self.impossible[number] = error
        return number

    def numbers_known(self, names: Collection[str]) -> list[int]:
        """The numbers of those topics that have a message."""
        known = [self._numbers.get(name.encode()) for name in names]
        return [number for number in known if number is not None]

    def prefixes(self) -> Words:
        """By topic: the CRC32C of ``topic#``, with which the hashes of its keys begin."""
        return np.array(self._prefixes, np.uint32)


@dataclass(slots=True)
class QueueRunColumns:
    """By run: number of the topic, queue, first offset, messages, number of the entry."""

    topics: Numbers
    queues: Numbers
    offsets: Numbers
    counts: Numbers
    entries: Numbers


@dataclass(slots=True)
class BatchColumns:
    """The batches of ``entries`` together. ``rows`` has the fields of :data:`ROWS`.

    * ``commands``: number of an entry with commands, and its packed commands.
    * ``minutes``: by entry, its store time in minutes since 1970; -1 without a message.
    * ``last_ms``: the store time of the last message, if any.
    """

    entries: Sequence[Entry]
    runs: QueueRunColumns
    rows: NDArray[np.void]
    key_rows: bytes
    commands: list[tuple[int, bytes]]
    minutes: Numbers
    last_ms: int | None

    def entries_with(self, topics: Sequence[int]) -> set[int]:
        """The numbers of the entries with messages of these topics, given by number."""
        if not topics:
            return set()
        return set(self.runs.entries[np.isin(self.runs.topics, topics)].tolist())

    def count_messages(self, topics: TopicNumbers) -> Iterator[tuple[tuple[str, int], int]]:
        """Topic, store time in minutes since 1970, and number of messages."""
        minutes = self.minutes[self.runs.entries]
        for minute in sorted(set(minutes[minutes >= 0].tolist())):
            at_once = minutes == minute
            found = np.bincount(self.runs.topics[at_once], self.runs.counts[at_once])
            for topic in np.flatnonzero(found).tolist():
                yield (topics.names[topic], minute), int(found[topic])


def plain_columns(
    entries: Sequence[Entry], batches: Sequence[Batch], topics: TopicNumbers
) -> BatchColumns:
    """The columns of entries, by their rows and run headers. Nothing is checked."""
    runs: list[tuple[int, int, int, int, int]] = []
    minutes: list[int] = []
    last_ms = None
    for number, batch in enumerate(batches):
        for run in batch.runs:
            topic = topics.number(run.topic.encode())
            runs.append((topic, run.queue_id, run.first_offset, run.row_count, number))
        records = batch.records
        first_ms = _stored_ms(records, 0)
        minutes.append(-1 if first_ms is None else (first_ms & _U64_MAX) // 60_000)
        if len(batch.rows):
            size = QUEUE_ROW.unpack_from(batch.rows, len(batch.rows) - QUEUE_ROW.size)[1]
            last_ms = _stored_ms(records, len(records) - size)
    columns = np.array(runs, np.int64).reshape(-1, 5).T
    return BatchColumns(
        entries,
        QueueRunColumns(*columns),
        np.frombuffer(b"".join([batch.rows for batch in batches]), ROWS),
        b"".join([batch.key_rows for batch in batches]),
        [
            (number, bytes(batch.commands))
            for number, batch in enumerate(batches)
            if len(batch.commands)
        ],
        np.array(minutes),
        last_ms,
    )


def _stored_ms(records: memoryview, start: int) -> int | None:
    """The store time of a record that begins at ``start``; ``None`` if that is outside."""
    at = start + _STORED_AT
    if not 0 <= at <= len(records) - 8:
        return None
    return int.from_bytes(records[at : at + 8], "big", signed=True)


def read_columns(
    data: Bytes, position: int, entries: Sequence[Entry], topics: TopicNumbers
) -> BatchColumns | None:
    """The batches of data entries if everything in them is right; else ``None``.

    ``data`` has the entries, and begins at ``position`` of the log.
    """
    octets = np.frombuffer(data, np.uint8)
    begins = np.array([entry.position for entry in entries], np.int64) + (HEADER_SIZE - position)
    ends = np.array([entry.end for entry in entries], np.int64) - position
    parts = cut_bodies(octets, begins, ends)
    if parts is None or int(parts.counts.sum()) < MESSAGES_MIN:
        return None
    view = memoryview(data)
    rows = np.frombuffer(_joined(view, parts.rows_at, parts.keys_at), ROWS)
    key_rows = _joined(view, parts.keys_at, parts.runs_at)
    messages = RecordColumns.read(octets, begins, parts, rows, np.full(len(begins), position))
    if messages is None:
        return None
    try:
        found = _find_runs(octets, messages, parts, topics)
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    runs, of_run = found
    topic_of = runs.topics[of_run]
    derived = derive_columns(
        octets,
        messages.properties,
        messages.ends - messages.properties,
        topics.prefixes()[topic_of],
    )
    if SCHEDULED_TOPICS.intersection(topics.names):
        _schedule(derived, messages, view, topic_of, topics)
    if (rows["tags"] != derived.tags).any():
        return None
    if not _are_keys_right(key_rows, parts, messages, derived):
        return None
    command_ends = ends - FOOTER.size
    stored = messages.heads["stored"]
    firsts = np.minimum(messages.first_of_entry, len(stored) - 1)
    return BatchColumns(
        entries,
        runs,
        rows,
        key_rows,
        [
            (number, bytes(view[int(parts.commands_at[number]) : int(command_ends[number])]))
            for number in np.flatnonzero(command_ends > parts.commands_at).tolist()
        ],
        (stored[firsts].astype(np.uint64) // 60_000).astype(np.int64),
        int(stored[-1]),
    )


def _joined(view: memoryview, begins: Numbers, ends: Numbers) -> bytes:
    return b"".join(
        [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    )


def _find_runs(
    octets: Octets, messages: RecordColumns, parts: BodyParts, topics: TopicNumbers
) -> tuple[QueueRunColumns, Numbers] | None:
    """The runs, and by message the number of its run; ``None`` if the records have other runs.

    A run begins with each new entry, queue or topic, and with an offset that does not follow.
    Raises ``UnicodeDecodeError`` for a topic that is not UTF-8.
    """
    heads, count = messages.heads, len(messages.heads)
    width = int(messages.topic_sizes.max()) + 8 & ~7
    names = texts_after(octets, messages.body_ends, messages.topic_sizes + 1, width)
    words = names.view(np.uint64)
    queues = heads["queue"].astype(np.int64)
    offsets = heads["offset"].astype(np.int64)
    is_first = np.zeros(count, bool)
    is_first[messages.first_of_entry[parts.counts > 0]] = True
    is_first[1:] |= (
        (queues[1:] != queues[:-1])
        | (offsets[1:] != offsets[:-1] + 1)
        | (words[1:] != words[:-1]).any(axis=1)
    )
    firsts = np.flatnonzero(is_first)
    if offsets[firsts].min() < 0:
        return None
    numbers = topics.numbers_of(names[firsts].view(f"V{width}").ravel().tolist())
    runs = QueueRunColumns(
        np.array(numbers, np.int64),
        queues[firsts],
        offsets[firsts],
        np.append(firsts[1:], count) - firsts,
        np.searchsorted(messages.first_of_entry, firsts, "right") - 1,
    )
    # The headers of the runs must fill their part of the body without a gap.
    sizes = messages.topic_sizes[firsts] + RUN_HEADER.size
    totals = np.concatenate(([0], np.cumsum(sizes)))
    edges = np.searchsorted(runs.entries, np.arange(len(parts.counts) + 1))
    if (totals[edges[1:]] - totals[edges[:-1]] != parts.commands_at - parts.runs_at).any():
        return None
    at = totals[:-1] + (parts.runs_at - totals[edges[:-1]])[runs.entries]
    stated = gather(octets, at, RUN_HEADER.size).view(_RUNS).ravel()
    topics_at = at + (RUN_HEADER.size - 1)
    if (
        (stated["offset"] != runs.offsets).any()
        or (stated["queue"] != runs.queues).any()
        or (stated["count"] != runs.counts).any()
        or (
            texts_after(octets, topics_at, sizes - (RUN_HEADER.size - 1), width) != names[firsts]
        ).any()
    ):
        return None
    return runs, np.cumsum(is_first) - 1


def _schedule(
    derived: PropertyColumns,
    messages: RecordColumns,
    view: memoryview,
    topic_of: Numbers,
    topics: TopicNumbers,
) -> None:
    """Replaces the tags codes of scheduled messages by their delivery times. They are few, so this
    goes one by one."""
    scheduled = topics.numbers_known(SCHEDULED_TOPICS)
    heads = messages.heads
    for number in np.flatnonzero(np.isin(topic_of, scheduled)).tolist():
        derived.tags[number] = row_code(
            topics.names[int(topic_of[number])],
            int(heads["queue"][number]),
            bytes(view[int(messages.properties[number]) : int(messages.ends[number])]),
            int(heads["stored"][number]),
        )


def _are_keys_right(
    key_rows: bytes, parts: BodyParts, messages: RecordColumns, derived: PropertyColumns
) -> bool:
    """Whether each message has a key row for each of its keys, in order."""
    counts = derived.key_counts
    totals = np.concatenate(([0], np.cumsum(counts)))
    firsts = messages.first_of_entry
    sizes = (totals[firsts + parts.counts] - totals[firsts]) * KEY_ROWS.itemsize
    if (sizes != parts.runs_at - parts.keys_at).any():
        return False
    found = np.frombuffer(key_rows, KEY_ROWS)
    seconds = messages.heads["stored"].astype(np.int64) // 1000 & 0xFFFFFFFF
    return not (
        (found["hash"] != derived.hashes).any()
        or (found["position"] != np.repeat(messages.positions, counts)).any()
        or (found["seconds"] != np.repeat(seconds, counts)).any()
    )
