"""Fetches a snapshot for a follower whose log ends before the leader's begins.

The follower gathers the leader's newest checkpoint and the entries up to it in a directory of their
own (:mod:`store.recovery.snapshot_install`), a piece at a time. Meanwhile the node goes on as it
is. Whatever happens, it has its old log or the whole new one. When everything is there, the node
stops with :class:`SnapshotInstalledError` and is opened again: everything in memory follows from
the log, and that is another one now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.errors import SnapshotInstalledError
from dledger.node.checkpoint_fetch import CheckpointFetch
from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.peer_calls import Answer, PeerCalls
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.raft.view import RaftView
from dledger.wire.service_messages import (
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    SnapshotNeededNotice,
)
from store.errors import DiskFullError, FatalDiskError, StoreError
from store.log.commit_log import OUT_OF_SPACE
from store.recovery.snapshot_install import InstallPlan, SnapshotInstall
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

FULL_DISK_SECONDS = 2.0
"""Pace: how long a full disk is left alone. Each try may fetch a whole checkpoint first."""
LOG_SECONDS = 10.0


class SnapshotReceiver:
    """The snapshot install of one node, if it needs one. On the event loop; the disk work is
    background.
    """

    def __init__(
        self,
        *,
        core: RaftView,
        store: ReplicaStore,
        calls: PeerCalls,
        background: Executor,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        vote_floor: int,
        diverged: Callable[[], bool],
    ) -> None:
        """``diverged`` says whether the log is known to be another than the group's."""
        self._core = core
        self._store = store
        self._lifecycle = lifecycle
        self._diverged = diverged
        self._calls = calls
        self._background = background
        self._loop = loop
        self._source = ""
        self._busy = False
        self._looked = False
        self._was_begun = store.holds_snapshot_install()
        self._began_with = core.commit_index
        self._install: SnapshotInstall | None = None
        self._logged_at = 0.0
        self.vote_floor = vote_floor
        """The last entry that this node may have confirmed before a snapshot install; -1 for none.
        """

    def look(self) -> None:
        """Removes what was gathered once it is of no use: no notice comes any more then.

        What an earlier process gathered is of none once the own log goes on: one that lacks
        entries, or differs from the group's, takes no more.
        """
        self.check_vote_floor()
        if self._busy:
            return
        if self._was_begun and not self._looked:
            if self._core.commit_index > self._began_with:
                self._looked = True
                self._drop()
        elif self._caught_up:
            self._drop()

    @property
    def _caught_up(self) -> bool:
        """Whether the own log has what is being gathered."""
        return (
            self._install is not None
            and self._core.commit_index >= self._install.plan.checkpoint_index
            and not self._diverged()
        )

    def check_vote_floor(self) -> None:
        """Votes again once this node holds durably all that it may ever have confirmed."""
        if not 0 <= self.vote_floor <= self._core.match_index:
            return
        self.vote_floor = -1

        def done(_none: None, error: BaseException | None) -> None:
            if error is not None:
                self._lifecycle.fail(error)

        self._background.submit(self._store.clear_vote_floor, done)

    @property
    def progress(self) -> tuple[int, int] | None:
        """The next entry to fetch and the last one, while a snapshot install is in progress."""
        install = self._install
        return None if install is None else (install.next_index, install.plan.checkpoint_index)

    @property
    def source(self) -> str:
        """The peer that is asked; None while no snapshot install is in progress."""
        return self._source if self._busy else ""

    def noticed(self, leader: str, notice: SnapshotNeededNotice) -> None:
        """The leader's log begins behind the last entry that matches ours. Our entries behind the
        commit index are no reason to keep this log: they may differ from the leader's. This node
        may have confirmed some of them; the vote floor of the snapshot install covers those.
        """
        core = self._core
        if leader == core.leader and core.commit_index + 1 < notice.first_index:
            source = self._trusted(leader)
            if source:
                self.begin(source)

    def _trusted(self, leader: str) -> str:
        """The peer to install from: the leader, or another member if the leader is no member by
        this log. Anybody may claim to lead, and a snapshot brings a whole log."""
        core = self._core
        if core.raft_state.joins or core.serves(leader):
            return leader
        known = [peer for peer in core.peers if peer in core.raft_state.up]
        if not known:
            log.error(
                "%s lacks entries that have expired at %s, which leads, and no member that is "
                "known here is reached: start this node with an empty directory and `join = true`",
                core.node,
                leader,
            )
        return known[0] if known else ""

    def begin(self, source: str) -> None:
        """Begins, or goes on with what was gathered before."""
        if self._busy:
            return
        self._busy = True
        self._source = source
        if self._looked:
            self._next()
            return
        self._looked = True
        self._background.submit(self._store.resume_snapshot_install, self._resumed)

    def _resumed(self, install: SnapshotInstall | None, error: BaseException | None) -> None:
        if not self._failed(error):
            self._install = install
            if install is not None:
                log.info("%s goes on refilling with %s", self._core.node, install.plan)
            self._next()

    def _next(self) -> None:
        """Asks for the next missing piece."""
        install = self._install
        if self._caught_up:
            self._drop()
        elif install is None:
            CheckpointFetch(self._calls, self._source, self._checkpoint_came, self._pause)
        elif install.ended:
            self._reopen(install)
        else:
            self._fetch(install)

    def _reopen(self, install: SnapshotInstall) -> None:
        """Stops this node, so that it is opened with the gathered log. It is silent from now on, so
        what it has said about its old log is final. While the disk has no room for the last step,
        the node goes on.
        """
        if not self._lifecycle.alive:
            return
        if not install.may_complete:
            self._failed(DiskFullError("all entries are there, and cannot be noted as complete"))
            return
        error = SnapshotInstalledError(f"refilled up to entry {install.next_index - 1}")
        self._lifecycle.fall_silent(error)
        log.warning("%s reopens: %s", self._core.node, error)
        last_index = self._core.entry_cache.last_index

        def done(_none: None, failed: BaseException | None) -> None:
            if failed is None or not _is_full(failed):
                self._lifecycle.ended(failed or error)
                return
            # It is as incomplete as before. Opened again, the node tries it again.
            again = SnapshotInstalledError(
                f"the disk is full, and the snapshot install is not complete: {failed}"
            )
            log.warning("%s reopens in %d s: %s", self._core.node, LOG_SECONDS, again)
            self._loop.call_later(LOG_SECONDS, self._lifecycle.ended, again)

        self._background.submit(lambda: install.complete(last_index), done)

    def _pause(self) -> None:
        """The leader's next notice begins it again."""
        self._busy = False

    def _drop(self) -> None:
        """Removes what was gathered: it is of no use any more, and takes room."""
        if self._install is not None:
            self._install.close()
        self._install = None
        self._background.submit(self._store.forget_snapshot_install, self._forgotten)
        self._pause()

    def _forgotten(self, _none: None, error: BaseException | None) -> None:
        if error is not None:
            self._lifecycle.fail(FatalDiskError(f"removing a refill failed: {error}"))

    def _failed(self, error: BaseException | None) -> bool:
        """Whether something went wrong. Every error but a full disk and bad entries stops the
        node."""
        if error is None:
            return False
        if _is_full(error):
            log.warning("the snapshot install waits: %s", error)
            self._loop.call_later(FULL_DISK_SECONDS, self._pause)
        elif isinstance(error, OSError):
            self._lifecycle.fail(FatalDiskError(f"refilling failed: {error}"))
        elif isinstance(error, StoreError) and not isinstance(error, FatalDiskError):
            log.error("the snapshot install from %s is invalid: %s", self._source, error)
            self._drop()
        else:
            self._lifecycle.fail(error)
        return True

    # --- the checkpoint

    def _checkpoint_came(self, answer: CheckpointResponse, data: bytes) -> None:
        plan = InstallPlan(answer.first_index, answer.first_position, answer.index)
        log.warning(
            "%(node)s lacks entries that have expired at its peers: refilling from %(peer)s, "
            "entries %(first)d to %(last)d",
            {
                "node": self._core.node,
                "peer": self._source,
                "first": plan.first_index,
                "last": plan.checkpoint_index,
            },
        )
        store, term = self._store, self._core.term
        self._background.submit(lambda: store.begin_snapshot_install(plan, data, term), self._begun)

    def _begun(self, install: SnapshotInstall | None, error: BaseException | None) -> None:
        if not self._failed(error):
            self._install = install
            self._next()

    # --- the entries

    def _fetch(self, install: SnapshotInstall) -> None:
        first, last = install.next_index, install.plan.checkpoint_index
        now = self._loop.time()
        if now >= self._logged_at:
            self._logged_at = now + LOG_SECONDS
            log.info("%s refills: entry %d of %d", self._core.node, first, last)
        self._calls.call(
            self._source,
            lambda number: FetchRequest(number, first, last, PIECE_BYTES),
            lambda answer: self._fetched(install, answer),
        )

    def _fetched(self, install: SnapshotInstall, answer: Answer | None) -> None:
        if not isinstance(answer, FetchResponse):
            self._pause()
        elif answer.status is FetchStatus.EXPIRED:
            log.warning("entry %d has expired at %s meanwhile", install.next_index, self._source)
            self._drop()
        elif answer.status is FetchStatus.ENTRIES and answer.entries:
            entries = answer.entries
            self._background.submit(
                lambda: install.append(entries), lambda _none, error: self._appended(error)
            )
        else:
            self._pause()

    def _appended(self, error: BaseException | None) -> None:
        if not self._failed(error):
            self._next()


def _is_full(error: BaseException) -> bool:
    """Whether a disk has no room for what was to be written."""
    full = isinstance(error, OSError) and error.errno in OUT_OF_SPACE
    return full or isinstance(error, DiskFullError)
