"""A node whose state differs from the group's drops the state and rebuilds it from the log.

A part that finds that this node's state is not the majority's reports it here. From then on the
node serves nobody, saves no checkpoint, gives none to its peers, and hands the leadership over.
Then it stops with :class:`~dledger.errors.StateDivergedError` and is opened again, without the
checkpoints that may be wrong:

- If the state went wrong while the node ran, the newest checkpoint up to which the state was proved
  is kept, or the one with which the process began. The log behind it is applied again.
- If applying the log at the start makes the wrong state, that checkpoint is wrong, or this node
  cannot apply the log rightly. The older checkpoint is tried, then the beginning of the log, if the
  log still has that.
- If nothing is left to begin with, the leader's newest checkpoint replaces all own ones. The log
  stays: it is as whole as before, and its entries were confirmed.

The last way is also taken if the next entry needs something damaged that the peers have expired, so
that nobody can repair it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dledger.errors import StateDivergedError
from dledger.node.checkpoint_fetch import CheckpointFetch
from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.peer_calls import PeerCalls
from dledger.raft.core import Raft
from dledger.wire.service_messages import StateReport
from store.errors import FatalDiskError, StoreError
from store.replica import ReplicaStore
from store.state.checkpoint import decode_checkpoint

log = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0
"""Seconds. A process is at least so old when it starts again, so a node that cannot get right does
not restart all the time. Steps back to an older checkpoint are few, and do not wait."""

TRANSFER_SECONDS = 1.0
LOOK_SECONDS = 0.02
FETCH_SECONDS = 0.5


class StateDivergence:
    """Of one node. On the event loop; the disk work is background."""

    def __init__(
        self,
        *,
        core: Raft,
        store: ReplicaStore,
        calls: PeerCalls,
        background: Executor,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        stop_serving: Callable[[], None],
        transfer_leadership: Callable[[], object],
        advance: Callable[[], None],
    ) -> None:
        """``stop_serving`` tells the node's other parts that :attr:`wrong` is not empty any more.
        ``transfer_leadership`` begins a transfer, if another could lead. ``advance`` has done what
        the core asks for."""
        self.wrong = ""
        """In which tables the state differs from the group's, or why it cannot follow. Empty if all
        is well."""
        self.unrepaired = False
        """Whether it is wrong because nobody can repair what the next entry needs."""
        self.proved = -1
        """The last entry after which the state was proved to be the group's, by this process."""
        self.on_report: Callable[[str, StateReport], None] = lambda _peer, _report: None
        """Called with what a peer says of its state."""
        self.on_wrong: Callable[[], None] = lambda: None
        """Called once, when the node stops serving."""
        self._core = core
        self._store = store
        self._calls = calls
        self._lifecycle = lifecycle
        self._tell_stop_serving = stop_serving
        self._transfer_leadership = transfer_leadership
        self._advance = advance
        self._background = background
        self._loop = loop
        found = store.recovered
        self._began_with = -1 if found.checkpoint is None else found.checkpoint.index
        self._held_at_start = found.last_index
        self._started_at = loop.time()
        self._found_at_index = -1
        self._gives_way_until = 0.0

    def agreed(self, index: int) -> None:
        """The state after that entry is the group's."""
        if not self.wrong:
            self.proved = index

    def differs(self, index: int, wrong: str) -> None:
        """The state after that entry differs from the majority's in the tables ``wrong``."""
        if self.wrong:
            return
        self.wrong, self._found_at_index = wrong, index
        log.critical(
            "%(node)s: the state after entry %(entry)d differs from the majority's in: %(tables)s; "
            "the node serves nobody until it has rebuilt its state",
            {"node": self._core.node, "entry": index, "tables": wrong},
        )
        # The entry that says so is being applied now, and must be applied to its end.
        self._loop.call_soon(self._stop_serving)

    def cannot_follow(self, index: int, why: str) -> None:
        """The entry cannot be applied, and no peer has repaired what it needs."""
        if self.wrong or not self._core.other_voters:
            return
        self.wrong, self.unrepaired = f"entry {index} cannot be applied: {why}", True
        log.critical(
            "%s: %s; the node serves nobody until it has the leader's checkpoint",
            self._core.node,
            self.wrong,
        )
        self._loop.call_soon(self._stop_serving)

    def _stop_serving(self) -> None:
        now = self._loop.time()
        if not self._lifecycle.alive:
            return
        self.on_wrong()
        self._tell_stop_serving()
        last = self._last_good()
        steps_back = last is not None and last < self._began_with
        at = now if steps_back else max(now, self._started_at + PAUSE_SECONDS)
        self._gives_way_until = at + TRANSFER_SECONDS
        self._loop.call_at(at, self._begin)

    def _begin(self) -> None:
        now = self._loop.time()
        if not self._lifecycle.alive:
            return
        if self._core.leads:
            if now < self._gives_way_until:
                if self._core.transfer_target is None:
                    self._transfer_leadership()
                    self._advance()
                self._loop.call_later(LOOK_SECONDS, self._begin)
                return
            self._core.step_down(now)
            self._advance()
        # A checkpoint may just be being saved, and remove the one to keep. So this waits for it;
        # no other is saved any more.
        self._background.submit(self._last_good, self._chosen)

    def _chosen(self, last: int | None, error: BaseException | None) -> None:
        if not self._lifecycle.alive:
            return
        if error is not None:
            self._lifecycle.fail(error)
        elif last is None:
            self._fetch()
        else:
            self._reopen_node(last)

    def _last_good(self) -> int | None:
        """The index up to which checkpoints are kept; None if a peer's is needed."""
        store = self._store
        if self.unrepaired:
            return None
        if self._found_at_index > self._held_at_start:
            last = max(self.proved, self._began_with)
        elif self._began_with < 0:
            return None
        else:
            last = self._began_with - 1
        kept = [index for index in store.checkpoints.indexes if index <= last]
        if not kept and store.first_index > 0:
            return None
        return max(kept, default=-1)

    def _reopen_node(self, last: int) -> None:
        where = "from its beginning" if last < 0 else f"behind the checkpoint of entry {last}"
        reason = StateDivergedError(f"the state is taken again from the log, {where}")
        self._lifecycle.fall_silent(reason)
        log.warning("%s reopens: %s", self._core.node, reason)
        self._background.submit(
            lambda: self._store.checkpoints.drop_after(last),
            lambda _none, error: self._lifecycle.ended(error or reason),
        )

    # --- the checkpoint of a peer

    def _fetch(self) -> None:
        leader = self._core.leader
        if not self._lifecycle.alive:
            return
        if leader is None or leader == self._core.node or not self._core.serves(leader):
            self._fetch_later()
            return
        CheckpointFetch(
            self._calls,
            leader,
            lambda answer, data: self._came(leader, answer.index, data),
            self._fetch_later,
        )

    def _fetch_later(self) -> None:
        self._loop.call_later(FETCH_SECONDS, self._fetch)

    def _came(self, leader: str, index: int, data: bytes) -> None:
        if self._core.commit_index < index:
            self._fetch_later()
            return
        store = self._store
        path = f"the checkpoint of {leader}"
        # The leader's log may begin later, and then it does not know of earlier terms.
        starts = self._core.entry_cache.term_starts(index)

        def save() -> int | None:
            checkpoint = replace(decode_checkpoint(data, path), term_starts=starts)
            return checkpoint.index if store.save_checkpoint(checkpoint, alone=True) else None

        self._background.submit(save, partial(self._saved, leader))

    def _saved(self, leader: str, index: int | None, error: BaseException | None) -> None:
        if isinstance(error, StoreError) and not isinstance(error, FatalDiskError):
            log.error("the checkpoint of %s is invalid: %s", leader, error)
        elif error is not None:
            self._lifecycle.fail(error)
            return
        if index is None:  # it is invalid, or of an entry that is not durable here yet
            self._fetch_later()
            return
        reason = StateDivergedError(f"the state is that of {leader} after entry {index}")
        self._lifecycle.fall_silent(reason)
        log.warning("%s reopens: %s", self._core.node, reason)
        self._lifecycle.ended(reason)
