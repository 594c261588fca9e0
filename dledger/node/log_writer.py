"""Writes the node's log: in order, one write at a time, and one sync for all that waited.

While a write is in progress, further writes wait and become the next one together. That is group
commit: the slower the disk, the more each sync carries.

A pure append is written without a waiting thread, if the system can do that
(:meth:`~store.replica.ReplicaStore.begin_append`). Everything else is a job for the log thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from dledger.histogram import Histogram
from dledger.node.executor import Executor
from dledger.raft.ready import Write
from store.errors import StoreError
from store.log.entry import Entry
from store.replica import ReplicaStore


def _nothing() -> None:
    """A job that does nothing but wait for its turn."""


class LogWriter:
    """Makes writes durable, and says which of them are."""

    def __init__(
        self,
        *,
        store: ReplicaStore,
        executor: Executor,
        sync_flush: bool,
        clock: Callable[[], float],
        written: Callable[[Sequence[Write]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``written`` is told of each job's writes once they are durable (with asynchronous flush:
        once they are in the page cache); ``failed`` ends the node. ``clock`` gives seconds that
        never run backward."""
        self.sync_flush = sync_flush
        self.sync_seconds = Histogram()
        """From the moment when a write is handed to the disk until this node knows that it is
        durable. With asynchronous flush it is the sync alone, without the write before it."""
        self._clock = clock
        self._begun_at = 0.0
        self._store = store
        self._executor = executor
        self._tell_written = written
        self._tell_failed = failed
        self.jobs_done = 0
        self._failed = False
        self._draining: list[Callable[[], None]] = []
        self._waiting: list[Write] = []
        self._under_way: list[Write] = []
        self._written_index = self._synced_index = store.recovered.last_index
        self._flushing: deque[int] = deque()  # what each sync in progress will make durable

    @property
    def busy(self) -> bool:
        """Whether a write is under way; :attr:`jobs_done` counts those that ended."""
        return bool(self._under_way)

    @property
    def synced_index(self) -> int:
        """The last entry of the present log that survives power loss, as far as is known."""
        return self._written_index if self.sync_flush else self._synced_index

    def add(self, write: Write) -> None:
        """Takes a write; it is begun at once if none is under way."""
        if write.truncate_from is not None:
            self._cut(write.truncate_from - 1)
        self._waiting.append(write)
        self._next()

    def flush(self, then: Callable[[], None] | None = None) -> None:
        """Syncs what asynchronous flush left in the page cache, then calls ``then``. With
        synchronous flush nothing is left there. A write may be in progress then, during which the
        log thread must have no job.
        """
        self._flushing.append(self._written_index)
        begun_at = self._clock()
        work = _nothing if self.sync_flush else self._store.sync

        def done(_result: None, error: BaseException | None) -> None:
            if error is not None:
                self._tell_failed(error)
                return
            self._synced_index = max(self._synced_index, self._flushing.popleft())
            if not self.sync_flush:
                self.sync_seconds.observe(self._clock() - begun_at)
            if then is not None:
                then()

        self._executor.submit(work, done)

    def drain(self, then: Callable[[], None]) -> None:
        """``then`` is called when all that was added is written, and all that was begun to sync
        has ended, well or not."""
        self._draining.append(then)
        self._drained()

    def _drained(self) -> None:
        if self._draining and (self._failed or not self._under_way):
            draining, self._draining = self._draining, []

            def done(_result: None, _error: BaseException | None) -> None:
                for then in draining:
                    then()

            self._executor.submit(_nothing, done)

    def _cut(self, last_index: int) -> None:
        """Entries that are cut do not count as durable: others will take their place."""
        self._written_index = min(self._written_index, last_index)
        self._synced_index = min(self._synced_index, last_index)
        self._flushing = deque(min(index, last_index) for index in self._flushing)

    def _next(self) -> None:
        if self._under_way or not self._waiting:
            return
        self._under_way, self._waiting = self._waiting, []
        self._begun_at = self._clock()
        if not self._begin():
            self._submit()

    def _begin(self) -> bool:
        """Whether the disk writes them without a thread."""
        entries: list[Entry] = []
        for write in self._under_way:
            if write.hard_state is not None or write.truncate_from is not None:
                return False
            entries += write.entries
        if not entries or not self.sync_flush:
            return False
        try:
            return self._store.begin_append(entries, self._begun_ended)
        except StoreError:
            return False  # the job meets the same error, and reports it in an event of its own

    def _begun_ended(self, error: BaseException | None) -> None:
        if isinstance(error, BlockingIOError):
            self._submit()
        else:
            self._written(None, error)

    def _submit(self) -> None:
        writes = self._under_way
        self._executor.submit(lambda: self._write(writes), self._written)

    def _write(self, writes: Sequence[Write]) -> None:
        """In the log thread. Order within and between writes is kept."""
        entries: list[Entry] = []
        appended = False
        for write in writes:
            if write.hard_state is not None:
                # The term under which entries were accepted reaches the disk before them.
                self._store.save_hard_state(*write.hard_state)
            if write.truncate_from is not None:
                self._store.append(entries)
                entries = []
                self._store.truncate(write.truncate_from)
            entries += write.entries
            appended = appended or bool(write.entries)
        self._store.append(entries)
        if appended and self.sync_flush:
            self._store.sync()

    def _written(self, _result: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed = True
            self._tell_failed(error)
            self._drained()
            return
        self.jobs_done += 1
        if self.sync_flush:
            self.sync_seconds.observe(self._clock() - self._begun_at)
        writes, self._under_way = self._under_way, []
        for write in writes:
            if write.entries:
                self._written_index = write.entries[-1].index
        for write in self._waiting:
            if write.truncate_from is not None:
                self._written_index = min(self._written_index, write.truncate_from - 1)
        self._tell_written(writes)
        self._next()
        self._drained()
