"""The state in a checkpoint: what the store must know, and the state of the broker.

It is a MessagePack array ``[version (1), state of the broker as binary, queues, segment times,
expired position, applied position]``:

- queues: ``[topic, queue id, first offset, end offset]`` of every ConsumeQueue;
- segment times: ``[start of a segment, store time in ms of the newest message up to its end]``;
- expired position: the log below it has expired;
- applied position: where the entry of the checkpoint ends.

The store does not look into the state of the broker.
"""

from __future__ import annotations

from operator import gt
from typing import NamedTuple

import msgpack

from store.errors import DataFormatError
from store.field_checks import (
    I64_MAX,
    array,
    binary,
    columns,
    file_name,
    integer,
    integers,
    named_rows,
    texts,
)
from store.io.packed_array import pack_array
from store.quoting import quoted

MACHINE_STATE_VERSION = 1
_FIELDS = 6
I32_MAX = (1 << 31) - 1


class QueueLength(NamedTuple):
    """The messages of one queue: ``first_offset`` to, exclusively, ``end_offset``."""

    topic: str
    queue_id: int
    first_offset: int
    end_offset: int


class MachineState(NamedTuple):
    """What a checkpoint says about the derived files, and the broker's own state."""

    broker: bytes
    queues: list[QueueLength]
    segment_times: dict[int, int]
    expired_position: int
    applied_end: int


def encode_machine_state(state: MachineState) -> bytes:
    """Equal states give equal bytes. ``queues`` must be sorted."""
    packer = msgpack.Packer()
    pack = packer.pack
    return b"".join(
        (
            packer.pack_array_header(_FIELDS),
            pack(MACHINE_STATE_VERSION),
            pack(state.broker),
            pack_array(state.queues),
            pack(sorted(state.segment_times.items())),
            pack(state.expired_position),
            pack(state.applied_end),
        )
    )


def decode_machine_state(data: bytes) -> MachineState:
    """Raises :class:`~store.errors.DataFormatError`."""
    try:
        version, broker, queues, times, expired_position, applied_end = array(
            msgpack.unpackb(data, use_list=False), _FIELDS
        )
        if version != MACHINE_STATE_VERSION:
            raise DataFormatError(
                f"the state of the checkpoint has version {quoted(version)}, "
                f"not {MACHINE_STATE_VERSION}"
            )
        return MachineState(
            binary(broker),
            _queue_lengths(queues),
            dict(_segment_time(pair) for pair in array(times)),
            integer(expired_position),
            integer(applied_end),
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise DataFormatError(f"the state of the checkpoint cannot be read: {error}") from error


def _queue_lengths(rows: object) -> list[QueueLength]:
    topics, queue_ids, firsts, ends = columns(rows, len(QueueLength._fields))
    names, first_offsets, end_offsets = texts(topics), integers(firsts), integers(ends)
    for name in set(names):
        file_name(name)
    if any(map(gt, first_offsets, end_offsets)):
        raise ValueError("a queue ends before it begins")
    numbers = integers(queue_ids, high=I32_MAX)
    return list(named_rows(QueueLength, names, numbers, first_offsets, end_offsets))


def _segment_time(pair: object) -> tuple[int, int]:
    start, time_ms = array(pair, 2)
    return integer(start), integer(time_ms, -I64_MAX)
