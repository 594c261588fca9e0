"""Planted bugs I: derived files, and look-ups in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.delivery.message_lookup import MessageLookup
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS, LOOKUPS
from store.index.consume_queue import ConsumeQueue
from store.index.key_file import KEY_ROW_SIZE, IndexFile
from store.index.key_index import KeyIndex
from store.index.queue_rows import QueueRows
from store.io.filesystem import Bytes

bug = BugsOf(LOOKUPS, seconds=8.0)


@bug("I1x", "is not as its log says", 10, world=BROKERS)
def key_lost_on_the_way_to_the_disk(patch: Patch) -> None:
    """A file of the key index lacks the last row that it should have."""

    @patch.around(KeyIndex, "write")
    def lossy(write: Original[IndexFile], index: KeyIndex, rows: bytes) -> IndexFile:
        return write(index, rows[:-KEY_ROW_SIZE] or rows)


@bug("I2x", "does not give", 5)
def last_key_of_an_entry_not_indexed(patch: Patch) -> None:
    """The last key of an entry is not indexed."""

    @patch.around(KeyIndex, "append")
    def lossy(append: Original[None], index: KeyIndex, key_rows: Bytes) -> None:
        append(index, key_rows[:-KEY_ROW_SIZE])


@bug("I3x", "does not give", 10)
def keys_looked_up_in_memory_alone(patch: Patch) -> None:
    """A query by key does not search the files of the index."""
    patch.set(KeyIndex, "_lookup_file", lambda _index, _file, _hash, _first, _last: [])


@bug("I4x", "leaves out", 5)
def time_of_the_message_before(patch: Patch) -> None:
    """A search by time returns the message behind the right one."""

    @patch.around(ConsumeQueue, "first_from")
    def late(
        first_from: Original[int],
        queue: ConsumeQueue,
        time_ms: int,
        store_time: Callable[[int, int], int],
    ) -> int:
        return min(first_from(queue, time_ms, store_time) + 1, queue.end_offset)


@bug("I5x", "nothing is found at position", 20)
def newest_message_not_found(patch: Patch) -> None:
    """Messages of the last applied entry cannot be looked up by their position."""

    @patch.around(MessageLookup, "record")
    def short(record: Original[None], lookup: MessageLookup, position: int, done: Any) -> None:
        newest = position >= lookup._machine.applied_end - 400
        record(lookup, -1 if newest else position, done)


@bug("I6x", "are not the log's | is not as its log says", 10, world=BROKERS)
def full_file_of_a_queue_begun_again(patch: Patch) -> None:
    """Behind the last row of a ConsumeQueue's first file, that file starts again."""
    path = QueueRows._path
    patch.set(QueueRows, "_path", lambda queue, _offset: path(queue, 0))
