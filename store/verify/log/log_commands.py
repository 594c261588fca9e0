"""The commands in the body of an entry, as the check reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import msgpack

from store.errors import CorruptBatchError, DataFormatError
from store.io.filesystem import Bytes
from store.state.state_digests import PROOF, unpack_reports

DELETE_TOPIC = "delete-topic"
EXPIRE = "expire"


class StatedProof(NamedTuple):
    """What the voters said of their states after the entry ``point``. ``alone``: there is no other
    command beside it."""

    point: int
    reports: bytes
    alone: bool


FileCommand: TypeAlias = str | int | StatedProof
"""A topic that is deleted, a position below which all has expired, or a proof."""


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


def file_commands(commands: Sequence[Any]) -> list[FileCommand]:
    """What the commands of a batch say of files, in order.

    Raises :class:`~store.errors.CorruptBatchError`.
    """
    found: list[FileCommand] = []
    for command in commands:
        match command:
            case [str(name), str(topic), *_] if name == DELETE_TOPIC:
                found.append(topic)
            case [str(name), int(position)] if name == EXPIRE:
                found.append(position)
            case [str(name), int(point), bytes(reports)] if name == PROOF:
                try:
                    unpack_reports(reports)
                except DataFormatError as error:
                    raise CorruptBatchError(str(error)) from error
                found.append(StatedProof(point, reports, len(commands) == 1))
    return found
