"""The fields of service messages, for ``wire/codec.py``: kinds from 32 on, so both can grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    HealthReport,
    RemovedNotice,
    ServiceMessage,
    SnapshotNeededNotice,
    StateReport,
)
from store.log.entry import decode_entries

FIRST_SERVICE_KIND = 32

Scalar: TypeAlias = type[int] | type[bool] | type[bytes]

SERVICE_FIELDS: dict[int, tuple[Scalar, ...]] = {
    32: (bool, bool, bool),
    33: (int, int, int, int),
    34: (int, int, int, bytes),
    35: (int,),
    36: (int, int, int),
    37: (int, int, int, int, int, int, bytes),
    38: (int,),
    39: (int, bytes),
}


def service_fields(message: ServiceMessage) -> tuple[int | bool | bytes, ...]:
    """The kind of a message, then its fields."""
    match message:
        case HealthReport(room, prompt, whole):
            return (32, room, prompt, whole)
        case FetchRequest(number, first_index, last_index, bytes_max):
            return (33, number, first_index, last_index, bytes_max)
        case FetchResponse(number, status, first_index, entries):
            return (34, number, status.value, first_index, b"".join(e.data for e in entries))
        case SnapshotNeededNotice(first_index):
            return (35, first_index)
        case CheckpointRequest(number, index, offset):
            return (36, number, index, offset)
        case CheckpointResponse(number, index, first_index, first_position, size, offset, data):
            return (37, number, index, first_index, first_position, size, offset, data)
        case RemovedNotice(index):
            return (38, index)
        case StateReport(index, digests):
            return (39, index, digests)


def service_message(kind: int, values: Sequence[Any]) -> ServiceMessage:
    """The message of fields whose types are right.

    Raises :class:`~store.errors.CorruptEntryError` for entries that are not whole, and
    ``ValueError`` for a status that does not exist.
    """
    match kind:
        case 32:
            return HealthReport(*values)
        case 33:
            return FetchRequest(*values)
        case 34:
            number, status, first_index, data = values
            entries = tuple(decode_entries(data))
            return FetchResponse(number, FetchStatus(status), first_index, entries)
        case 35:
            return SnapshotNeededNotice(*values)
        case 36:
            return CheckpointRequest(*values)
        case 37:
            return CheckpointResponse(*values)
        case 38:
            return RemovedNotice(*values)
        case _:
            return StateReport(*values)
