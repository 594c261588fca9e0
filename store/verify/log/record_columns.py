"""Reads the records in the bodies of many entries at once: fields, and places of their parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from store.message.batch import BATCH_VERSION, FOOTER, KEY_ROW, QUEUE_ROW
from store.message.record import HEAD, RECORD_FIXED_SIZE, RECORD_MAGIC, TOPIC_BYTES_MAX, V6_HOSTS
from store.verify.log.byte_columns import Numbers, Octets, Words, columns_of, gather

ROWS = columns_of(QUEUE_ROW, "position size tags")
KEY_ROWS = columns_of(KEY_ROW, "hash position seconds")
HEADS = columns_of(
    HEAD,
    "size magic crc queue flag offset position flags born born_host stored store_host tried "
    "prepared length",
)
"""The fields of a record with IPv4 hosts up to its body. ``flags`` is SYSFLAG."""
ALIKE_MIN = 8
"""For fewer bodies, slices are as fast as an array."""
_FOOTERS = columns_of(FOOTER, "records count keys runs commands version")


@dataclass(slots=True)
class BodyParts:
    """By entry: the number of its messages, and the bytes at which the parts of its body begin."""

    counts: Numbers
    rows_at: Numbers
    keys_at: Numbers
    runs_at: Numbers
    commands_at: Numbers


def cut_bodies(octets: Octets, begins: Numbers, ends: Numbers) -> BodyParts | None:
    """The parts of bodies; ``None`` if a footer does not add up."""
    if not len(begins) or (ends - begins).min() < FOOTER.size:
        return None
    footers = gather(octets, ends - FOOTER.size, FOOTER.size).view(_FOOTERS).ravel()
    records, counts, keys, runs, commands, versions = (
        footers[name].astype(np.int64) for name in _FOOTERS.names or ()
    )
    rows_at = begins + records
    keys_at = rows_at + ROWS.itemsize * counts
    runs_at = keys_at + KEY_ROWS.itemsize * keys
    commands_at = runs_at + runs
    if (commands_at + commands + FOOTER.size != ends).any() or (versions != BATCH_VERSION).any():
        return None
    return BodyParts(counts, rows_at, keys_at, runs_at, commands_at)


@dataclass(slots=True)
class RecordColumns:
    """By message: the fields before its body, its position in the log, the size of its topic, and
    the bytes in the data at which its body ends, and its properties begin and end.

    ``first_of_entry``: by entry, the number of its first message.
    """

    heads: NDArray[np.void]
    positions: Numbers
    body_ends: Numbers
    topic_sizes: Numbers
    properties: Numbers
    ends: Numbers
    first_of_entry: Numbers

    @classmethod
    def read(
        cls,
        octets: Octets,
        begins: Numbers,
        parts: BodyParts,
        rows: NDArray[np.void],
        shifts: Numbers,
    ) -> RecordColumns | None:
        """The records; ``None`` unless each is intact, has its CRC, and lies where its row says.

        ``begins``: by entry, the byte of ``octets`` at which its body begins. ``shifts``: by entry,
        its position in the log minus its byte in ``octets``.
        """
        sizes = rows["size"].astype(np.int64)
        if sizes.min() < RECORD_FIXED_SIZE:
            return None
        # The records of a batch follow each other.
        totals = np.concatenate(([0], np.cumsum(sizes)))
        last_of_entry = np.cumsum(parts.counts)
        first_of_entry = last_of_entry - parts.counts
        if (totals[last_of_entry] - totals[first_of_entry] != parts.rows_at - begins).any():
            return None
        starts = totals[:-1] + np.repeat(begins - totals[first_of_entry], parts.counts)
        ends = starts + sizes
        heads = gather(octets, starts, HEAD.size).view(HEADS).ravel()
        positions = starts + np.repeat(shifts, parts.counts)
        lengths = heads["length"].astype(np.int64)
        bodies = starts + HEAD.size
        body_ends = bodies + lengths
        if (
            (heads["size"] != sizes).any()
            or (heads["magic"] != RECORD_MAGIC).any()
            or (heads["position"] != positions).any()
            or (rows["position"] != positions).any()
            or (heads["flags"] & V6_HOSTS).any()
            or lengths.min() < 0
            or (body_ends + 3 > ends).any()
        ):
            return None
        topic_sizes = octets[body_ends].astype(np.int64)
        properties = body_ends + topic_sizes + 3
        if (properties > ends).any() or topic_sizes.max() > TOPIC_BYTES_MAX:
            return None
        stated = octets[properties - 2].astype(np.int64) << 8 | octets[properties - 1]
        if (properties + stated != ends).any():
            return None
        crcs = _body_crcs(octets, starts, sizes, lengths)
        if ((crcs & np.uint32(0x7FFFFFFF)) != heads["crc"]).any():
            return None
        return cls(heads, positions, body_ends, topic_sizes, properties, ends, first_of_entry)

    def only(self, wanted: NDArray[np.bool_]) -> RecordColumns:
        """Some of the messages. ``first_of_entry`` is empty."""
        return RecordColumns(
            self.heads[wanted],
            self.positions[wanted],
            self.body_ends[wanted],
            self.topic_sizes[wanted],
            self.properties[wanted],
            self.ends[wanted],
            self.first_of_entry[:0],
        )


def _body_crcs(octets: Octets, starts: Numbers, sizes: Numbers, lengths: Numbers) -> Words:
    """The CRC-32 of the body of each record. Records are given by starts and sizes.

    They are computed one by one, because RocketMQ keeps only 31 bits of a CRC: CRCs cannot be
    combined. A slice costs more than the CRC of 1 KiB. If records of one shape follow each other,
    their bodies are the items of an array, which cost half as much.
    """
    crcs = np.empty(len(starts), np.uint32)
    is_first = np.ones(len(starts), bool)
    is_first[1:] = (
        (lengths[1:] != lengths[:-1])
        | (sizes[1:] != sizes[:-1])
        | (starts[1:] != starts[:-1] + sizes[:-1])
    )
    firsts = np.flatnonzero(is_first)
    counts = np.append(firsts[1:], len(starts)) - firsts
    is_single = np.ones(len(starts), bool)
    alike = np.flatnonzero((counts >= ALIKE_MIN) & (lengths[firsts] > 0))
    for first, count in zip(firsts[alike].tolist(), counts[alike].tolist(), strict=True):
        place, step = int(starts[first]) + HEAD.size, int(sizes[first])
        bodies = np.ndarray((count,), _body_type(int(lengths[first])), octets, place, (step,))
        crcs[first : first + count] = list(map(crc32, bodies))
        is_single[first : first + count] = False
    begins = starts[is_single] + HEAD.size
    ends = begins + lengths[is_single]
    view = octets.data
    bounds = zip(begins.tolist(), ends.tolist(), strict=True)
    crcs[is_single] = [crc32(view[begin:end]) for begin, end in bounds]
    return crcs


@lru_cache
def _body_type(length: int) -> np.dtype[np.void]:
    """``length`` bytes in a field. Without a field, the items of an array would be copies."""
    return np.dtype([("body", f"V{length}")])
