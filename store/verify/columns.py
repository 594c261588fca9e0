"""The check of a batch column by column: what costs per message is little but its body's CRC.

Messages of one producer have heads of one layout and, mostly, properties of one layout. NumPy then
compares one field of all messages at once. Whatever does not fit is for the check record by record
(:mod:`store.verify.batches`): "not proved" says nothing against a batch.
"""

from __future__ import annotations

import zlib
from itertools import groupby, repeat
from operator import attrgetter

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.batch import Batch, RunHeader
from store.deferred import DEFERRED_TOPICS
from store.entry import HEADER_SIZE, Entry
from store.properties import KEYS, NAME_END, PAIR_END, UNIQUE_KEY
from store.record import (
    HEAD,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    V6_HOSTS,
    derive,
    key_prefix,
)

MESSAGES_MIN = 16
"""Below so many messages the check record by record is as fast."""

_ROWS = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_KEY_ROWS = np.dtype([("hash", ">u4"), ("position", ">i8"), ("seconds", ">u4")])
_HEAD = np.dtype(
    {
        "names": [
            "size", "magic", "crc", "queue", "offset", "position", "flags", "stored", "length",
        ],
        "formats": [">i4", ">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">i4"],
        "offsets": [0, 4, 8, 12, 20, 28, 36, 56, 84],
        "itemsize": HEAD.size,
    }
)  # fmt: skip
_HEAD_BYTES = np.arange(HEAD.size)

Bytes2D = NDArray[np.uint8]


def is_proved(entry: Entry, batch: Batch) -> bool:
    """Whether records, rows, key rows and checksums of the batch are all as they must be."""
    rows = np.frombuffer(batch.rows, _ROWS)
    if len(rows) < MESSAGES_MIN or any(run.topic in DEFERRED_TOPICS for run in batch.runs):
        return False
    records = np.frombuffer(batch.records, np.uint8)
    sizes = rows["size"].astype(np.int64)
    if sizes.min() < RECORD_FIXED_SIZE or int(sizes.sum()) != len(records):
        return False
    ends = np.cumsum(sizes)
    starts = ends - sizes
    positions = starts + (entry.position + HEADER_SIZE)
    heads = records[starts[:, None] + _HEAD_BYTES].view(_HEAD).ravel()
    lengths = heads["length"].astype(np.int64)
    body_starts = starts + HEAD.size
    body_ends = body_starts + lengths
    if (
        not _are_heads_right(heads, batch.runs, sizes)
        or not np.array_equal(heads["position"], positions)
        or not np.array_equal(rows["position"], positions)
        or lengths.min() < 0
        or (body_ends + 3 > ends).any()
    ):
        return False
    body = batch.records
    bounds = map(slice, body_starts.tolist(), body_ends.tolist())
    crcs = np.array(list(map(zlib.crc32, map(body.__getitem__, bounds))), np.uint32)
    if not np.array_equal(crcs & np.uint32(0x7FFFFFFF), heads["crc"]):
        return False
    return _are_tails_right(
        batch, records=records, rows=rows, heads=heads, begins=body_ends, ends=ends
    )


def _are_heads_right(
    heads: NDArray[np.void], runs: list[RunHeader], sizes: NDArray[np.int64]
) -> bool:
    counts = [run.count for run in runs]
    queues = np.repeat([run.queue_id for run in runs], counts)
    # The offset of a message less its place in the batch is one for a whole run.
    firsts = np.repeat([run.first_offset - run.first_row for run in runs], counts)
    return (
        np.array_equal(heads["size"], sizes)
        and bool((heads["magic"] == RECORD_MAGIC).all())
        and np.array_equal(heads["queue"], queues)
        and np.array_equal(heads["offset"], firsts + np.arange(len(heads)))
        and not (heads["flags"] & V6_HOSTS).any()
    )


def _are_tails_right(
    batch: Batch,
    *,
    records: Bytes2D,
    rows: NDArray[np.void],
    heads: NDArray[np.void],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> bool:
    """Topics and properties, and what is derived from these."""
    expected_keys: list[bytes] = []
    for topic, group in groupby(batch.runs, attrgetter("topic")):
        runs = list(group)
        first, last = runs[0].first_row, runs[-1].first_row + runs[-1].count
        size = int(ends[first] - begins[first])
        if ((ends[first:last] - begins[first:last]) != size).any():
            return False
        tails = records[begins[first:last, None] + np.arange(size)]
        derived = _derive_all(topic, tails)
        if derived is None or (rows["tags"][first:last] != derived[0]).any():
            return False
        if derived[1]:
            keys = np.empty((last - first, len(derived[1])), _KEY_ROWS)
            keys["hash"] = np.array(derived[1], np.uint32).T
            keys["position"] = heads["position"][first:last, None]
            keys["seconds"] = (heads["stored"][first:last, None] // 1000) & 0xFFFFFFFF
            expected_keys.append(keys.tobytes())
    return b"".join(expected_keys) == batch.key_rows


def _derive_all(topic: str, tails: Bytes2D) -> tuple[int, list[list[int]]] | None:
    """The tags code and, key by key, the hashes of all messages; ``None`` for mixed layouts."""
    name = topic.encode()
    topic_part = bytes((len(name),)) + name
    at = len(topic_part) + 2
    first = tails[0].tobytes()
    properties = first[at:]
    if first[:at] != topic_part + len(properties).to_bytes(2, "big"):
        return None
    fixed = np.ones(tails.shape[1], bool)
    for start, end in _free_values(properties):
        fixed[at + start : at + end] = False
    if (tails[:, fixed] != tails[0, fixed]).any() or (tails[:, ~fixed] <= ord(b" ")).any():
        return None
    prefix = key_prefix(topic)
    tags, hashes = derive(prefix, properties)
    columns = []
    for start, end in _words(properties):
        size = end - start
        joined = memoryview(tails[:, at + start : at + end].tobytes())
        places = range(0, len(joined), size)
        slices = map(slice, places, range(size, len(joined) + size, size))
        columns.append(list(map(crc32c, map(joined.__getitem__, slices), repeat(prefix))))
    if [column[0] for column in columns] != list(hashes):
        return None
    return tags, columns


def _words(properties: bytes) -> list[tuple[int, int]]:
    """Where the keys of a message stand in its properties: the unique key, then each word."""
    spans = []
    unique, keys = _find(properties, UNIQUE_KEY), _find(properties, KEYS)
    if unique is not None:
        spans.append(unique)
    if keys is not None:
        place = keys[0]
        for word in properties[keys[0] : keys[1]].split():
            place = properties.index(word, place)
            spans.append((place, place + len(word)))
            place += len(word)
    return spans


def _find(properties: bytes, name: bytes) -> tuple[int, int] | None:
    """Where the value of a property begins and ends, if it has one that is not empty."""
    mark = PAIR_END + name + NAME_END
    start = (PAIR_END + properties).find(mark) + len(mark) - 1
    if start < len(mark) - 1:
        return None
    end = (properties + PAIR_END).index(PAIR_END, start)
    return (start, end) if end > start else None


def _free_values(properties: bytes) -> list[tuple[int, int]]:
    """What may differ from message to message: keys, word by word, and other properties' values.

    Not so the tag: its code is then one for all.
    """
    spans = _words(properties)
    place = 0
    for pair in properties.split(PAIR_END):
        name, separator, value = pair.partition(NAME_END)
        start = place + len(name) + len(separator)
        if value and name not in {KEYS, UNIQUE_KEY, b"TAGS"} and min(value) > ord(b" "):
            spans.append((start, start + len(value)))
        place += len(pair) + 1
    return spans
