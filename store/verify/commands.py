"""The commands in the body of an entry, as the check reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from store.errors import CorruptBatchError
from store.filesystem import Bytes

DELETE_TOPIC = "delete-topic"
EXPIRE = "expire"


def unpack_commands(commands: Bytes) -> list[Any]:
    """The arrays of a batch's commands. Raises :class:`~store.errors.CorruptBatchError`."""
    if not len(commands):
        return []
    try:
        arrays = msgpack.unpackb(commands)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptBatchError(f"the commands are not MessagePack: {error}") from error
    if not isinstance(arrays, list):
        raise CorruptBatchError(f"the commands are no array: {arrays!r}")
    return arrays


def file_commands(commands: Sequence[Any]) -> list[str | int]:
    """What the commands of a batch do to files: topics deleted, positions expired."""
    found: list[str | int] = []
    for command in commands:
        match command:
            case [str(name), str(topic), *_] if name == DELETE_TOPIC:
                found.append(topic)
            case [str(name), int(position)] if name == EXPIRE:
                found.append(position)
    return found
