"""Compares ConsumeQueues and key index with the log.

The scrub calls it (``dledger/node/scrubber.py``) on the background executor. Only that executor
writes these files, so nothing is written during a comparison. Only the part that the newest
checkpoint covers is compared: rows behind it may still be in memory.

A wrong block of a ConsumeQueue (:mod:`broker.maintenance.queue_blocks_check`), or a wrong file of
the key index (:mod:`broker.maintenance.key_files_check`), is rebuilt from the log. That needs all
consecutive entries of its range. If one of them is damaged, the block stays unchanged until a later
pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from broker.maintenance.key_files_check import KeyFilesCheck
from broker.maintenance.queue_blocks_check import QueueBlocksCheck
from store.errors import CorruptBatchError, DamagedError, DiskFullError
from store.index.consume_queue import ConsumeQueue
from store.index.key_index import KeyIndex
from store.index.queue_tails import Tails
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry, EntryKind
from store.message.batch import Batch, decode_batch
from store.replica import ReplicaStore
from store.state.checkpoint import decode_checkpoint
from store.state.machine_state import MachineState, decode_machine_state

log = logging.getLogger(__name__)

CHECKPOINT_BYTES_MAX = 1 << 30
"""Pace: the bytes of this node's own checkpoint, which is read at once."""


class DerivedFilesCheck:
    """See :class:`dledger.node.scrubber.DerivedFiles`.

    Several may be used in turns. Each knows only the entries that it was given.
    """

    def __init__(
        self,
        store: ReplicaStore,
        keys: KeyIndex,
        queue: Callable[[str, int], ConsumeQueue | None],
        *,
        save_tails: Callable[[Tails], None],
        unwritable: Callable[[], None] = lambda: None,
    ) -> None:
        """``queue`` gives a queue by topic and id. ``save_tails`` writes tails to ``state/tails``,
        where that has others.

        ``unwritable`` is called if a file cannot be written any more, before the node stops: the
        next start creates other files.
        """
        self._store = store
        self._save_tails = save_tails
        self._unwritable = unwritable
        self._keys = KeyFilesCheck(keys)
        self._queues = QueueBlocksCheck(queue)
        self._next_index = -1

    def begin_pass(self) -> None:
        """Reads which part the newest checkpoint covers."""
        state = self._covered()
        self._queues.begin_pass(state)
        self._keys.begin_pass(state)
        self._next_index = -1

    def check(self, entries: Sequence[Entry]) -> list[str]:
        """Compares entries with the files, and rebuilds wrong blocks and files. Returns what was
        wrong.

        The entries of one pass come in order, without damaged ones. Raises
        :class:`~store.errors.DiskFullError` if there is no room for a block or a file: it is
        rebuilt in a later pass.
        """
        try:
            with _full_disk_told():
                return self._check(entries)
        except OSError:
            self._unwritable()
            raise

    def _check(self, entries: Sequence[Entry]) -> list[str]:
        told: list[str] = []
        for entry in entries:
            if entry.index != self._next_index:
                is_first = entry.index == self._store.first_index
                self._queues.begin_run(is_first=is_first)
                self._keys.begin_run(0 if is_first else entry.position)
            self._next_index = entry.index + 1
            batch = _batch_of(entry)
            if batch is not None:
                told += self._queues.take(batch)
            told += self._keys.take(entry, b"" if batch is None else batch.key_rows)
        return told

    def end_pass(self) -> list[str]:
        """Saves the sealed tails, and checks all pages of the key index; wrong files are rebuilt in
        the next pass. Returns what was wrong and is repaired, or will be.

        Raises :class:`~store.errors.DiskFullError` if there is no room: the next pass saves them.
        """
        with _full_disk_told():
            told = self._queues.end_pass()
            tails = self._queues.sealed_tails()
            if tails:
                self._save_tails(tails)
        return told + self._keys.end_pass()

    def _covered(self) -> MachineState | None:
        try:
            index, _, data = self._store.read_checkpoint(-1, 0, CHECKPOINT_BYTES_MAX)
            checkpoint = decode_checkpoint(data, f"checkpoint {index}") if index >= 0 else None
        except DamagedError as error:
            # The next checkpoint replaces it.
            log.error("the derived files are not compared with the log: %s", error)
            return None
        return None if checkpoint is None else decode_machine_state(checkpoint.state)


@contextmanager
def _full_disk_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        raise DiskFullError(f"no room for derived files: {error}") from error


def _batch_of(entry: Entry) -> Batch | None:
    if entry.kind is not EntryKind.DATA:
        return None
    try:
        return decode_batch(entry.body)
    except CorruptBatchError:
        return None  # its CRC is right, so a leader made it like this; applying it has failed
