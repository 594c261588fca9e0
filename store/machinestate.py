"""The state in a checkpoint: an envelope of which the store knows the outside.

A MessagePack array ``[version (1), state of the broker as binary, queues, segment times, expired
position, applied position]``. Queues lists ``[topic, queue id, first offset, end offset]`` of
every ConsumeQueue; segment times pairs ``[start of a segment, store time in ms of the newest
message up to its end]``; below the expired position the log was given up; the applied position is
where the entry of the checkpoint ends. The state of the broker is opaque here.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from store.errors import DataFormatError

MACHINE_STATE_VERSION = 1


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
    """Equal states give equal bytes; ``queues`` come in order already."""
    packed: bytes = msgpack.packb(
        (
            MACHINE_STATE_VERSION,
            state.broker,
            state.queues,
            sorted(state.segment_times.items()),
            state.expired_position,
            state.applied_end,
        )
    )
    return packed


def decode_machine_state(data: bytes) -> MachineState:
    """Raises :class:`~store.errors.DataFormatError`."""
    try:
        version, broker, queues, times, expired_position, applied_end = msgpack.unpackb(data)
        if version != MACHINE_STATE_VERSION:
            raise DataFormatError(
                f"the state of the checkpoint has version {version}, not {MACHINE_STATE_VERSION}"
            )
        lengths = [QueueLength(*queue) for queue in queues]
        return MachineState(broker, lengths, dict(times), expired_position, applied_end)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DataFormatError(f"the state of the checkpoint cannot be read: {error}") from error
