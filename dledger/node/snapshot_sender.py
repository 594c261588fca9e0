"""Gives peers what they lack from this node's disk: committed entries and the newest checkpoint.

The leader tells a follower whose log ends before the leader's begins, and the follower asks for the
rest. This must not slow acknowledgements much (thesis 5.1 leaves the pace to the implementation).
Reads run on the background executor, in small pieces and at a bounded rate. While the node itself
writes a lot, pieces are in progress for at most a twelfth of the time. A piece is in progress from
its read until the follower has written it and asks for the next. So acknowledgements are slowed by
less than a tenth, even if nothing else can go on meanwhile. The more a piece disturbs, the longer
is the pause after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.raft.core import Raft
from dledger.raft.ready import Read
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    FetchStatus,
    ServiceMessage,
    SnapshotNeededNotice,
)
from store.errors import DamagedError, OutOfDescriptorsError, OutOfRangeError, StoreError
from store.log.entry import Entry
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

PIECE_BYTES = 256 << 10
BUSY_JOBS = 5
"""If the node makes more writes than this between two looks for followers, it is at work."""

BUSY_SHARE = 1 / 12
"""The share of the time for which pieces may be in progress while the node is at work."""

PIECE_SECONDS_MAX = 0.1
"""Seconds. A piece counts for no longer: a longer time is spent on the network, which slows
nobody."""

TURN_SECONDS_MAX = 2.0
"""Seconds. Who would wait longer for its turn is told to ask again: a peer waits no longer than
ANSWER_SECONDS for its answer (:mod:`dledger.node.peer_calls`), and this one may be long on its way.
"""

PROGRESS_KEPT_SECONDS = 60.0
"""Seconds after a follower's last progress for which retention keeps what it still needs. Two
followers take turns, and at 1 MiB/s a turn takes up to 16 s."""


class _Needed(NamedTuple):
    """An entry that a peer has yet to write."""

    position: int
    """Where the entry lies, by the entry itself and not by the entry index, whose rows may rot."""
    since: float


class SnapshotSender:
    """Answers the questions of :mod:`dledger.node.peer_calls`. On the event loop."""

    def __init__(
        self,
        *,
        core: Raft,
        store: ReplicaStore,
        background: Executor,
        reads: Executor,
        loop: asyncio.AbstractEventLoop,
        bytes_per_second: int,
        lifecycle: Lifecycle,
        jobs_done: Callable[[], int],
        state_wrong: Callable[[], str],
        suspect: Callable[[int], None],
        send: Callable[[str, ServiceMessage], None],
        advance: Callable[[], None],
    ) -> None:
        """``jobs_done`` counts the writes of the log, and ``state_wrong`` says in what the state is
        known to be wrong. ``suspect`` has a damaged entry looked at, and ``advance`` has done what
        the core asks for."""
        self._core = core
        self._store = store
        self._lifecycle = lifecycle
        self._jobs_done = jobs_done
        self._state_wrong = state_wrong
        self._suspect = suspect
        self._send = send
        self._advance = advance
        self._background = background
        self._reads = reads
        self._loop = loop
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0
        self._jobs = 0
        self._busy = False
        self._serving: dict[str, None] = {}
        self._begun: dict[str, float] = {}  # when the last piece for a peer was begun
        self._next_index: dict[str, int] = {}  # the entry behind what a peer was given last
        self._needed: dict[str, _Needed] = {}

    @property
    def needed_position(self) -> int | None:
        """From where on snapshot installs in progress have still to fetch the log from here.

        Only progress counts. A peer may ask for the same entries for ever: its disk is full, or
        the entry is damaged here, too.
        """
        since = self._loop.time() - PROGRESS_KEPT_SECONDS
        needed = [each.position for each in self._needed.values() if each.since >= since]
        return min(needed, default=None)

    def _gave_checkpoint(self, peer: str, first_index: int, first_position: int) -> None:
        """A whole checkpoint was given, and all entries of the log are to follow."""
        self._next_index[peer] = first_index
        before = self._needed.get(peer)
        if before is None or before.position != first_position:
            self._needed[peer] = _Needed(first_position, self._loop.time())

    def _gave_entries(self, peer: str, entries: Sequence[Entry]) -> None:
        first = entries[0]
        if first.index == self._next_index.get(peer):
            self._needed[peer] = _Needed(first.position, self._loop.time())
        self._next_index[peer] = entries[-1].index + 1

    def look(self) -> None:
        """Looks for followers that are behind the log, and how busy the node is: twice a second,
        together with the disk (:mod:`dledger.node.health_monitor`)."""
        jobs, self._jobs = self._jobs, self._jobs_done()
        self._busy = self._jobs - jobs > BUSY_JOBS
        core = self._core
        for peer, progress in core.progress.items():
            previous = progress.next_index - 1
            if progress.connected and (
                previous + 1 < core.entry_cache.first_index
                or core.entry_cache.term_at(previous) is None
            ):
                self._send(peer, SnapshotNeededNotice(core.entry_cache.first_index))

    def read_for_append(self, read: Read) -> None:
        """Entries for a follower that lags too far to be served from memory. They belong to
        replication, so the executor for reads reads them at once.
        """

        def done(entries: list[Entry] | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("cannot read entries from %d: %s", read.first_index, error)
                if not isinstance(error, StoreError):
                    self._lifecycle.fail(error)
                    return
                if isinstance(error, DamagedError):
                    self._suspect(read.first_index)
            if self._lifecycle.alive:
                self._core.loaded(read.peer, entries or [], self._loop.time())
                self._advance()

        self._reads.submit(
            lambda: self._store.read_entries(read.first_index, read.last_index, read.bytes_max),
            done,
        )

    # --- questions

    def fetch(self, peer: str, request: FetchRequest) -> None:
        """Answers with entries, when the rate allows it; a node that is no member gets none."""
        store, core = self._store, self._core
        last_index = min(request.last_index, core.commit_index, store.last_index)
        if request.first_index < store.first_index:
            self._refuse(peer, request, FetchStatus.EXPIRED)
        elif request.first_index > last_index or not core.serves(peer):
            self._refuse(peer, request, FetchStatus.MISSING)
        elif peer in self._serving or self._free_at - self._loop.time() > TURN_SECONDS_MAX:
            self._refuse(peer, request, FetchStatus.BUSY)
        else:
            self._serving[peer] = None
            self._in_turn(peer, lambda: self._read(peer, request, last_index))

    def _in_turn(self, peer: str, begin: Callable[[], None]) -> None:
        """Begins a piece when the rate, and the last one's share of the time, allow it."""
        now = self._loop.time()
        before = self._begun.pop(peer, None)
        if before is not None and self._busy:
            took = min(now - before, PIECE_SECONDS_MAX)
            self._free_at = max(self._free_at, now + took * (1 / BUSY_SHARE - 1))
        if self._free_at <= now:
            self._begin(peer, begin)
        else:
            self._loop.call_at(self._free_at, self._begin, peer, begin)

    def _begin(self, peer: str, begin: Callable[[], None]) -> None:
        if self._lifecycle.failure is None:
            self._begun[peer] = self._loop.time()
            begin()

    def _refuse(self, peer: str, request: FetchRequest, status: FetchStatus) -> None:
        self._send(peer, FetchResponse(request.number, status, self._store.first_index))

    def _read(self, peer: str, request: FetchRequest, last_index: int) -> None:
        store = self._store
        bytes_max = min(max(request.bytes_max, 0), PIECE_BYTES)

        def done(entries: list[Entry] | None, error: BaseException | None) -> None:
            self._serving.pop(peer, None)
            if error is not None:
                self._not_read(peer, request, error)
            elif entries is not None:
                self._gave_entries(peer, entries)
                self._spend(sum(entry.size for entry in entries))
                first = store.first_index
                self._send(
                    peer,
                    FetchResponse(request.number, FetchStatus.ENTRIES, first, tuple(entries)),
                )

        self._background.submit(
            lambda: store.read_entries(request.first_index, last_index, bytes_max), done
        )

    def _not_read(self, peer: str, request: FetchRequest, error: BaseException) -> None:
        if isinstance(error, OutOfRangeError):
            self._refuse(peer, request, FetchStatus.EXPIRED)
        elif isinstance(error, OutOfDescriptorsError):
            self._refuse(peer, request, FetchStatus.BUSY)
        elif isinstance(error, DamagedError):
            log.error("cannot give entry %d to %s: %s", request.first_index, peer, error)
            self._suspect(request.first_index)
            self._refuse(peer, request, FetchStatus.MISSING)
        else:
            self._lifecycle.fail(error)

    def checkpoint(self, peer: str, request: CheckpointRequest) -> None:
        """Answers with a piece of a checkpoint, first of the newest. A node that is no member gets
        none, and nobody does while the checkpoint may hold a wrong state."""
        store = self._store
        if not self._core.serves(peer) or self._state_wrong():
            self._send(peer, CheckpointResponse(request.number, -1, -1, -1, 0, 0, b""))
            return
        if peer in self._serving:
            return  # a peer has one question open at a time, and asks again if it gets no answer
        self._serving[peer] = None

        def done(found: tuple[int, int, bytes] | None, error: BaseException | None) -> None:
            self._serving.pop(peer, None)
            if error is not None and not isinstance(error, StoreError | OSError):
                self._lifecycle.fail(error)
                return
            index, size, data = (-1, 0, b"") if found is None else found
            self._spend(len(data))
            first_index, first_position = store.beginning()
            if data and request.offset + len(data) == size:
                self._gave_checkpoint(peer, first_index, first_position)
            answer = CheckpointResponse(
                request.number, index, first_index, first_position, size, request.offset, data
            )
            self._send(peer, answer)

        self._in_turn(
            peer,
            lambda: self._background.submit(
                lambda: store.read_checkpoint(request.index, max(request.offset, 0), PIECE_BYTES),
                done,
            ),
        )

    def _spend(self, size: int) -> None:
        self._free_at = max(self._free_at, self._loop.time()) + size / self._bytes_per_second
