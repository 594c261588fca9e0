"""Reads the commands in the bodies of entries."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import msgpack

from store.errors import CorruptBatchError, DataFormatError
from store.io.filesystem import Bytes
from store.state.state_digests import PROOF, unpack_reports
from store.verify.log.batch_columns import BatchColumns, TopicNumbers

DELETE_TOPIC = "delete-topic"
EXPIRE = "expire"
TRIM = "trim"


class StatedProof(NamedTuple):
    """The voters' reports of their states after the entry ``point``.

    ``alone``: the entry with the proof has no other command.
    """

    point: int
    reports: bytes
    alone: bool


class QueueTrim(NamedTuple):
    """The queue begins at ``offset`` or later."""

    topic: str
    queue_id: int
    offset: int


FileCommand: TypeAlias = str | int | QueueTrim | StatedProof
"""The name of a deleted topic, a position below which the log has expired, a trim, or a proof."""


class EntryCommands(NamedTuple):
    """All commands of an entry, and those about files, both in order."""

    all: list[Any]
    of_files: list[FileCommand]


def commands_of(columns: BatchColumns, topics: TopicNumbers) -> dict[int, EntryCommands]:
    """The commands of each entry that has some, by number of the entry.

    Raises :class:`~store.errors.CorruptBatchError` for anything else than commands, and for a
    topic that cannot name a directory of ConsumeQueues.
    """
    for number, error in topics.impossible.items():
        if (columns.runs.topics == number).any():
            raise CorruptBatchError(f"the topic of a run: {error}") from error
    return {number: unpack_commands(packed) for number, packed in columns.commands}


def unpack_commands(packed: Bytes) -> EntryCommands:
    """Raises :class:`~store.errors.CorruptBatchError`."""
    try:
        commands = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptBatchError(f"the commands are not MessagePack: {error}") from error
    if not isinstance(commands, list):
        raise CorruptBatchError(f"the commands are no array: {commands!r}")
    of_files: list[FileCommand] = []
    for command in commands:
        match command:
            case [str(name), str(topic), *_] if name == DELETE_TOPIC:
                of_files.append(topic)
            case [str(name), int(position)] if name == EXPIRE:
                of_files.append(position)
            case [str(name), str(topic), int(queue_id), int(offset)] if name == TRIM:
                of_files.append(QueueTrim(topic, queue_id, offset))
            case [str(name), int(point), bytes(reports)] if name == PROOF:
                try:
                    unpack_reports(reports)
                except DataFormatError as error:
                    raise CorruptBatchError(str(error)) from error
                of_files.append(StatedProof(point, reports, len(commands) == 1))
    return EntryCommands(commands, of_files)
