"""Saves marks and checkpoints, prepares and removes segments, and flushes.

This keeps a node's start short and its disk in order. None of it is on the path of a message: all
disk work runs on the background executor. It looks for work soon after the log has grown, and
otherwise seldom.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.log_writer import LogWriter
from dledger.node.state_machine import CheckpointWork, StateMachine
from dledger.raft.core import Raft
from dledger.raft.raft_state import Role
from store.errors import DamagedError, DiskFullError, FatalDiskError, OutOfDescriptorsError
from store.log.entry import Entry
from store.replica import ReplicaStore
from store.state.checkpoint import Checkpoint
from store.state.replication_evidence_file import SavedEvidence

log = logging.getLogger(__name__)

MARK_SECONDS = 0.2
"""How many seconds the durable mark lags behind the log."""

EVIDENCE_SECONDS = 1.0
"""Seconds. For what no entry announces: the evidence of other members, and a disk that was full."""

FLUSH_SECONDS = 0.5  # RocketMQ's flushIntervalCommitLog

REPLAYED_ENTRIES = 2_000
REPLAYED_SECONDS = 0.5
"""A start that finds this many entries behind its checkpoint saves the next one this soon. A node
that is killed again and again would replay more each time."""


class Checkpointer:
    """Housekeeping of one node."""

    def __init__(
        self,
        *,
        core: Raft,
        store: ReplicaStore,
        writer: LogWriter,
        machine: StateMachine,
        background: Executor,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        log_drained: Callable[[], Awaitable[None]],
        state_wrong: Callable[[], str],
    ) -> None:
        """``log_drained`` waits until the log writer has written everything. ``state_wrong`` names
        the tables in which the state is known to be wrong; then no checkpoint is saved."""
        self._core = core
        self._store = store
        self._writer = writer
        self._lifecycle = lifecycle
        self._log_drained = log_drained
        self._state_wrong = state_wrong
        self._machine = machine
        self._background = background
        self._loop = loop
        found = store.recovered
        checkpoint = found.checkpoint
        self._marked_index = -1
        self._checkpoint_index = -1 if checkpoint is None else checkpoint.index
        self._checkpoint_position = 0 if checkpoint is None else checkpoint.end_position
        self._checkpoint_at = 0.0
        self._applied: Entry | None = None
        self._checkpointing = False
        self._wanted: list[Callable[[BaseException | None], None]] = []
        self._marking = False
        self._preparing = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False  # whether the next look is far away
        self._looked_at = 0.0
        self._flush_at = 0.0
        self._save_evidence_at = 0.0
        self._evidence = list(found.held)

    def start(self) -> None:
        """Begins the periodic work."""
        seconds = self._core.config.checkpoint_seconds
        if self._store.recovered.last_index - self._checkpoint_index >= REPLAYED_ENTRIES:
            seconds = min(seconds, REPLAYED_SECONDS)
        self._checkpoint_at = self._loop.time() + seconds
        self._tick()

    async def stop(self) -> None:
        """Saves a last mark and checkpoint, so that the next start has nothing to replay."""
        self._idle = False
        if self._timer is not None:
            self._timer.cancel()
        await self._drained()
        self.checkpoint()
        await self._log_drained()
        self._save_mark()
        self._save_evidence()
        await self._drained()

    async def _drained(self) -> None:
        drained = self._loop.create_future()
        self._background.submit(lambda: None, lambda _result, _error: drained.set_result(None))
        await drained

    def applied(self, entry: Entry) -> None:
        """Called for each entry when it is applied."""
        self._applied = entry
        if self._idle:
            self._look_soon()

    def log_grew(self) -> None:
        """Called after each write of the log."""
        if self._idle:
            self._look_soon()
        self._prepare_ahead()

    def _prepare_ahead(self) -> None:
        if self._store.needs_preallocation and not self._preparing:
            self._preparing = True
            follows = self._core.role is Role.FOLLOWER
            self._background.submit(lambda: self._prepare(drop_cached=follows), self._prepared)

    def _prepare(self, *, drop_cached: bool) -> None:
        """In the background thread. Consumers read from the leader, so the pages stay in its
        memory. A follower only writes."""
        self._store.preallocate_next()
        if drop_cached:
            self._store.drop_cached()

    def _prepared(self, _result: None, error: BaseException | None) -> None:
        self._preparing = False
        self._failed(error)

    def _failed(self, error: BaseException | None) -> bool:
        if isinstance(error, DiskFullError):
            log.warning("checkpointing waits: %s", error)
        elif error is not None:
            self._lifecycle.fail(error)
        return error is not None

    def _tick(self) -> None:
        now = self._looked_at = self._loop.time()
        if self._lifecycle.failure is not None:
            return
        if not self._writer.sync_flush and now >= self._flush_at:
            self._flush_at = now + FLUSH_SECONDS
            self._writer.flush()
        hurries = self._marking or not self._writer.sync_flush
        self._save_mark()
        if now >= self._save_evidence_at:
            # A timer may be early by the clock's resolution; the next look must not miss it.
            self._save_evidence_at = now + EVIDENCE_SECONDS - MARK_SECONDS / 2
            self._save_evidence()
        position = 0 if self._applied is None else self._applied.end
        checkpoint_bytes = self._core.config.checkpoint_bytes
        grown = position - self._checkpoint_position >= checkpoint_bytes
        if grown or now >= self._checkpoint_at:
            self.checkpoint()
        self._checkpoint_wanted()
        # A full disk had no room for this: it is tried again. Until then no entry comes to the log.
        self._prepare_ahead()
        seconds = MARK_SECONDS if hurries or self._wanted else self._look_after(now)
        self._idle = seconds > MARK_SECONDS
        self._timer = self._loop.call_later(seconds, self._tick)

    def _look_after(self, now: float) -> float:
        """In how many seconds something may be due if the log does not move until then."""
        applied = self._applied
        if applied is not None and applied.index > self._checkpoint_index:
            return min(max(self._checkpoint_at - now, MARK_SECONDS), EVIDENCE_SECONDS)
        return EVIDENCE_SECONDS

    def _look_soon(self) -> None:
        """Looks late enough to see several changes at once, and not too often."""
        self._idle = False
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        at = max(now + MARK_SECONDS / 2, self._looked_at + MARK_SECONDS)
        self._timer = self._loop.call_at(at, self._tick)

    def _save_mark(self) -> None:
        """Notes how far the log is both committed and durable: damage below is never cut."""
        core = self._core
        index = min(core.commit_index, self._writer.synced_index)
        entry = core.entry_cache.entry(index)
        if self._marking or entry is None or index <= self._marked_index:
            return
        self._marking = True
        store = self._store

        def done(saved: bool | None, error: BaseException | None) -> None:
            self._marking = False
            if not self._failed(error) and saved:
                self._marked_index = index

        self._background.submit(
            lambda: store.save_mark(index, entry.end, entry.chain_crc, index), done
        )

    def _save_evidence(self) -> None:
        """Saves what the members are known to hold: an old copy of a disk must be recognised after
        a restart, too (:mod:`dledger.raft.replication_evidence`)."""
        known = [SavedEvidence(*holding) for holding in self._core.known_evidence()]
        if known == self._evidence:
            return
        self._evidence = known
        store = self._store

        def done(_result: None, error: BaseException | None) -> None:
            if self._failed(error):
                self._evidence = []  # no room: tried again

        self._background.submit(lambda: store.save_evidence(known), done)

    def checkpoint_then(self, then: Callable[[BaseException | None], None]) -> None:
        """Calls ``then`` once a checkpoint of all that is applied now is saved, or with the error
        for which it could not be."""
        self._wanted.append(then)
        self._checkpoint_wanted()
        if self._wanted and self._idle:
            self._look_soon()

    def _checkpoint_wanted(self) -> None:
        """An entry that is not durable here yet waits for the next tick."""
        if not self._wanted or self._checkpointing:
            return
        if self._applied is None or self._applied.index <= self._checkpoint_index:
            wanted, self._wanted = self._wanted, []
            for then in wanted:
                then(None)
        else:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Saves the state as of the last applied entry, once that entry is durable here."""
        entry = self._applied
        if (
            self._checkpointing
            or entry is None
            or entry.index <= self._checkpoint_index
            or entry.index > self._core.durable_index
            or self._state_wrong()
        ):
            return
        self._checkpointing = True
        wanted, self._wanted = self._wanted, []
        self._checkpoint_at = self._loop.time() + self._core.config.checkpoint_seconds
        work = self._machine.begin_checkpoint()
        without_state = Checkpoint(
            index=entry.index,
            end_position=entry.end,
            chain_crc=entry.chain_crc,
            term=entry.term,
            term_starts=self._core.entry_cache.term_starts(entry.index),
            commit_index=entry.index,
            state=b"",
            configuration=self._core.configurations.packed_at(entry.index),
        )

        def save() -> bool:
            work.flush()
            checkpoint = replace(without_state, state=work.state)
            # It may have been found wrong since: then no checkpoint is added to those that are
            # kept or dropped now (see dledger/node/state_divergence.py).
            return not self._state_wrong() and self._store.save_checkpoint(checkpoint)

        # The log is made durable first: a checkpoint must never know more than the log below it.
        self._writer.flush(
            lambda: self._background.submit(
                save, lambda saved, error: self._saved(work, entry, wanted, saved, error)
            )
        )

    def _saved(
        self,
        work: CheckpointWork,
        entry: Entry,
        wanted: list[Callable[[BaseException | None], None]],
        saved: bool | None,
        error: BaseException | None,
    ) -> None:
        self._checkpointing = False
        if error is None:
            try:
                work.finish(saved=bool(saved))
            except OutOfDescriptorsError as lacking:  # the checkpoint is saved all the same
                log.warning("old files stay until the next checkpoint: %s", lacking)
            except OSError as failed:  # it removes files that no checkpoint needs any more
                error = FatalDiskError(f"removing expired files failed: {failed}")
        if self._failed(error):
            for then in wanted:
                then(error)
            return
        if saved:
            self._checkpoint_index = entry.index
            self._checkpoint_position = entry.end
            for then in wanted:
                then(None)
            self._checkpoint_wanted()
        else:
            self._wanted = wanted + self._wanted

    def expire(self, position: int) -> None:
        """Removes what lies below ``position``, in whole segments."""

        def done(_result: None, error: BaseException | None) -> None:
            if isinstance(error, DamagedError):
                log.warning("old segments stay until what is damaged is repaired: %s", error)
            elif not self._failed(error):
                self._core.expired(self._store.first_index)

        self._background.submit(lambda: self._store.expire(position), done)
