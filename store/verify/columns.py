"""The check of batches column by column: what costs per message is little but its body's CRC.

NumPy compares one field of all messages at once, over as many entries as lie in one buffer.
Whatever does not fit is for the check record by record (:mod:`store.verify.batches`): "not proved"
says nothing against a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from store.batch import Batch
from store.deferred import DEFERRED_TOPICS, row_code
from store.entry import HEADER_SIZE, Entry
from store.filesystem import Bytes
from store.record import HEAD, RECORD_FIXED_SIZE, RECORD_MAGIC, V6_HOSTS
from store.verify.layouts import Derived, Numbers, derive_columns, gather

MESSAGES_MIN = 16
"""Below so many messages the check record by record is as fast."""

COPIED_MAX = 256
"""Of a longer body a view is cheaper than a copy."""

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


def are_proved(data: Bytes, position: int, batches: Sequence[tuple[Entry, Batch]]) -> bool:
    """Whether records, rows, key rows and checksums of the batches are all as they must be.

    The bytes of the entries lie in ``data``, which begins at ``position`` of the log.
    """
    full = []
    for entry, batch in batches:
        if len(batch.rows):
            full.append((entry, batch))
        elif len(batch.records) or len(batch.key_rows):
            return False
    rows = np.frombuffer(b"".join([batch.rows for _, batch in full]), _ROWS)
    if len(rows) < MESSAGES_MIN:
        return not full
    sizes = rows["size"].astype(np.int64)
    if sizes.min() < RECORD_FIXED_SIZE:
        return False
    # Records follow each other from where those of their batch begin.
    counts = np.array([len(batch.rows) // _ROWS.itemsize for _, batch in full])
    firsts = np.cumsum(counts) - counts
    if np.add.reduceat(sizes, firsts).tolist() != [len(batch.records) for _, batch in full]:
        return False
    bases = np.array([entry.position for entry, _ in full]) + (HEADER_SIZE - position)
    ends = np.cumsum(sizes)
    ends += np.repeat(bases - (ends[firsts] - sizes[firsts]), counts)
    starts = ends - sizes
    octets = np.frombuffer(data, np.uint8)
    heads = gather(octets, starts, HEAD.size).view(_HEAD).ravel()
    positions = starts + position
    lengths = heads["length"].astype(np.int64)
    body_starts = starts + HEAD.size
    body_ends = body_starts + lengths
    if (
        not _are_heads_right(heads, full, sizes)
        or (heads["position"] != positions).any()
        or (rows["position"] != positions).any()
        or lengths.min() < 0
        or (body_ends + 3 > ends).any()
    ):
        return False
    view = memoryview(data)
    crcs = _body_crcs(view, full, firsts, sizes, (body_starts, body_ends))
    if ((crcs & np.uint32(0x7FFFFFFF)) != heads["crc"]).any():
        return False
    topics, topic_of = _topics(full)
    derived = derive_columns(octets, topics, topic_of, body_ends, ends)
    if derived is None:
        return False
    if DEFERRED_TOPICS.intersection(topics):
        _defer(derived.tags, full, view, heads=heads, tails=(body_ends, ends))
    if (rows["tags"] != derived.tags).any():
        return False
    return _are_keys_right(full, firsts, positions=positions, heads=heads, derived=derived)


def _body_crcs(
    data: memoryview,
    batches: Sequence[tuple[Entry, Batch]],
    firsts: Numbers,
    sizes: Numbers,
    edges: tuple[Numbers, Numbers],
) -> NDArray[np.uint32]:
    """The CRC-32 of each body; ``edges`` are where they begin and end in ``data``.

    A slice costs more than the CRC of 1 KiB. Of records of one size NumPy makes an array, whose
    items are views of the bodies, if its type has fields; they cost half a slice.
    """
    begins, ends = edges
    lengths = ends - begins
    is_alike = np.maximum.reduceat(sizes, firsts) == np.minimum.reduceat(sizes, firsts)
    is_alike &= np.maximum.reduceat(lengths, firsts) == np.minimum.reduceat(lengths, firsts)
    is_alike &= lengths[firsts] > 0
    parts: list[Iterable[int]] = []
    places = [*firsts.tolist(), len(sizes)]
    for (_, batch), alike, first, end in zip(
        batches, is_alike.tolist(), places, places[1:], strict=False
    ):
        bodies: Iterable[Any]
        if alike:
            length, stride = int(lengths[first]), (int(sizes[first]),)
            alike_bodies: NDArray[np.void] = np.ndarray(
                (end - first,), _body_type(length), batch.records, HEAD.size, stride
            )
            bodies = alike_bodies.tolist() if length <= COPIED_MAX else alike_bodies
        else:
            bounds = map(slice, begins[first:end].tolist(), ends[first:end].tolist())
            bodies = map(data.__getitem__, bounds)
        parts.append(map(crc32, bodies))
    return np.fromiter(chain.from_iterable(parts), np.uint32, len(sizes))


@lru_cache(maxsize=64)
def _body_type(length: int) -> np.dtype[np.void]:
    return np.dtype(f"V{length}" if length <= COPIED_MAX else [("body", f"V{length}")])


def _are_heads_right(
    heads: NDArray[np.void], batches: Sequence[tuple[Entry, Batch]], sizes: Numbers
) -> bool:
    runs = [run for _, batch in batches for run in batch.runs]
    counts = np.array([run.count for run in runs])
    queues = np.repeat(np.array([run.queue_id for run in runs]), counts)
    # The offset of a message less its place among all is one for a whole run.
    places = np.cumsum(counts) - counts
    firsts = np.repeat(np.array([run.first_offset for run in runs]) - places, counts)
    firsts += np.arange(len(heads))
    return not (
        (heads["size"] != sizes).any()
        or (heads["magic"] != RECORD_MAGIC).any()
        or (heads["queue"] != queues).any()
        or (heads["offset"] != firsts).any()
        or (heads["flags"] & V6_HOSTS).any()
    )


def _topics(batches: Sequence[tuple[Entry, Batch]]) -> tuple[list[str], Numbers]:
    """The topics there are, and by message the number of its own."""
    numbers: dict[str, int] = {}
    of_run = []
    counts = []
    for _, batch in batches:
        for run in batch.runs:
            of_run.append(numbers.setdefault(run.topic, len(numbers)))
            counts.append(run.count)
    return list(numbers), np.repeat(np.array(of_run), counts)


def _defer(
    tags: Numbers,
    batches: Sequence[tuple[Entry, Batch]],
    data: memoryview,
    *,
    heads: NDArray[np.void],
    tails: tuple[Numbers, Numbers],
) -> None:
    """Rows of messages that wait hold a time, not a tags code: message by message, as they are few.

    Their ``tags`` are replaced.
    """
    place = 0
    for _, batch in batches:
        for run in batch.runs:
            skipped = 3 + len(run.topic.encode())
            for number in range(place, place + run.count if run.topic in DEFERRED_TOPICS else 0):
                begin, end = (int(edges[number]) for edges in tails)
                tags[number] = row_code(
                    run.topic,
                    run.queue_id,
                    bytes(data[begin + skipped : end]),
                    int(heads["stored"][number]),
                    int(tags[number]),
                )
            place += run.count


def _are_keys_right(
    batches: Sequence[tuple[Entry, Batch]],
    firsts: Numbers,
    *,
    positions: Numbers,
    heads: NDArray[np.void],
    derived: Derived,
) -> bool:
    """Each message's key rows, one for each of its keys in their order."""
    counts = derived.key_counts
    sizes = [len(batch.key_rows) for _, batch in batches]
    if (np.add.reduceat(counts, firsts) * _KEY_ROWS.itemsize).tolist() != sizes:
        return False
    found = np.frombuffer(b"".join([batch.key_rows for _, batch in batches]), _KEY_ROWS)
    seconds = heads["stored"].astype(np.int64) // 1000 & 0xFFFFFFFF
    hashes = np.empty(len(found), np.uint32)
    begins = np.cumsum(counts) - counts
    for places, columns in derived.hashes:
        starts = begins[places]
        for number, column in enumerate(columns):
            hashes[starts + number] = column
    return not (
        (found["hash"] != hashes).any()
        or (found["position"] != np.repeat(positions, counts)).any()
        or (found["seconds"] != np.repeat(seconds, counts)).any()
    )
