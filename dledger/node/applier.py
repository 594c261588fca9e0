"""Applies committed entries to the state machine, each once and in order.

A damaged entry stops only this part: the scrub is told, fetches the entry from a peer, and it is
tried again. So is an entry that needs a file which cannot be opened now. If the state machine must
read for long first, the thread for reads does that, and a leader transfers the leadership. Any
other entry that cannot be applied ends the node: going on would serve another state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.errors import InvariantError
from dledger.histogram import Histogram
from dledger.node.executor import Executor
from dledger.node.leadership_announcer import LeadershipAnnouncer
from dledger.node.lifecycle import Lifecycle
from dledger.node.state_machine import LongReadError, StateMachine
from dledger.raft.core import Raft
from dledger.raft.raft_state import Role
from dledger.raft.ready import NOTHING, Ready
from store.errors import DamagedError, DerivedDamageError, DiskFullError, StoreError
from store.log.entry import Entry, EntryKind
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

APPLY_BYTES_MAX = 4 << 20
APPLY_RETRY_SECONDS = 0.3
REPAIR_SECONDS = 10.0
"""Seconds. Peers that have the entry give it sooner. An entry that they have expired never
comes."""

LONG_READ_SECONDS = 1.0
"""Seconds that a leader reads before it transfers the leadership: its clients wait."""

_LEADER = Role.LEADER  # after each event, and Python 3.11 takes 50 ns to find a member of an Enum


class Applier:
    """Of one node. On the event loop; reading is done by the executor for reads."""

    def __init__(
        self,
        *,
        core: Raft,
        store: ReplicaStore,
        machine: StateMachine,
        reads: Executor,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        lifecycle: Lifecycle,
        announcer: LeadershipAnnouncer,
        noted: Callable[[Entry], None],
        configured: Callable[[int], None],
        answered: Callable[[Entry, float], None],
        caught_up: Callable[[], None],
        suspect: Callable[[int], None],
        suspect_derived: Callable[[int], None],
        unrepaired: Callable[[int, str], None],
        transfer_leadership: Callable[[], object],
        advance: Callable[[], None],
    ) -> None:
        """Of each applied entry ``noted`` is told first, then ``configured`` of its index if it is
        a configuration, then ``answered`` with the time. ``caught_up`` is told after some of them.
        ``suspect`` has a damaged entry looked at, ``suspect_derived`` what is derived from the log
        from a position on. ``unrepaired`` is told of an entry that could not be applied for long,
        and why. ``transfer_leadership`` begins a transfer, if another could lead. ``advance`` has
        done what the core asks for. ``clock`` gives seconds that never run
        backward."""
        checkpoint = store.recovered.checkpoint
        self.applied_index = -1 if checkpoint is None else checkpoint.index
        """The last entry that is applied."""
        self.apply_seconds = Histogram()
        """How long the state machine took for an entry."""
        self._clock = clock
        self._core = core
        self._store = store
        self._lifecycle = lifecycle
        self._announcer = announcer
        self._noted = noted
        self._configured = configured
        self._answered = answered
        self._caught_up = caught_up
        self._suspect = suspect
        self._suspect_derived = suspect_derived
        self._unrepaired = unrepaired
        self._transfer_leadership = transfer_leadership
        self._advance = advance
        self._machine = machine
        self._reads = reads
        self._loop = loop
        self._reading = False
        self._waits_since: float | None = None
        self._due = False

    def apply_after(self, ready: Ready) -> None:
        """Applies what is committed after an event with this Ready, now or a little later. A leader
        applies at once: its clients wait. So does a leader that this event deposes, because it
        drops what is not applied by then. Other members apply later. Else this would delay what the
        event sends, which leaves at the end of the turn, and the log thread, which would wait for
        the interpreter. The end of a write is the next event, and so is each heartbeat.
        """
        if (
            ready is NOTHING
            or self._core.raft_state.role is _LEADER
            or self._announcer.leadership.role is _LEADER
        ):
            self.apply()
        elif ready.write is None and not self._due:
            self._due = True
            self._loop.call_soon(self._apply_due)

    def _apply_due(self) -> None:
        self._due = False
        if self._lifecycle.alive:
            self._advance()

    def apply(self) -> None:
        """Applies what is committed and in memory; the rest follows when it is read."""
        if self._reading:
            return
        core, raft_log = self._core, self._core.raft_log
        while self.applied_index < raft_log.commit_index:
            entry = core.entry_cache.entry(self.applied_index + 1)
            if entry is None:
                self._read()
                return
            if not self._apply_one(entry):
                return
        self._caught_up()
        core.applied(self.applied_index)

    def _apply_one(self, entry: Entry) -> bool:
        began_at = self._clock()
        try:
            self._machine.apply(entry)
        except LongReadError as needed:
            self._read_for_long(needed.read, self._loop.time())
            return False
        except (DerivedDamageError, DiskFullError) as error:
            self._put_off(error)
            return False
        except (InvariantError, StoreError, OSError) as error:
            # It is not applied, or only in part. An OSError must not reach the transport, which
            # would take it for an error of a socket.
            self._lifecycle.fail(error)
            return False
        self._waits_since = None
        ended_at = self._clock()
        self.apply_seconds.observe(ended_at - began_at)
        self.applied_index = entry.index
        self._noted(entry)
        if entry.kind is EntryKind.CONFIGURATION:
            self._configured(entry.index)
        self._answered(entry, ended_at)
        return True

    def _read(self) -> None:
        self._reading = True
        core, store = self._core, self._store
        first = self.applied_index + 1
        last = min(core.commit_index, core.entry_cache.cached_from - 1)
        self._reads.submit(
            lambda: store.read_entries(first, last, APPLY_BYTES_MAX), self._entries_read
        )

    def _read_for_long(self, read: Callable[[], bool], since: float) -> None:
        """Reads a piece, then the next: between them other jobs of the thread have their turn."""
        self._reading = True

        def came(ended: bool | None, error: BaseException | None) -> None:
            if not (ended or error) and self._lifecycle.alive:
                self._give_way(since)
                self._read_for_long(read, since)
            else:
                self._entries_read(None, error)

        self._reads.submit(read, came)

    def _give_way(self, since: float) -> None:
        core = self._core
        long = self._loop.time() - since >= LONG_READ_SECONDS
        if long and core.leads and core.transfer_target is None:
            self._transfer_leadership()
            self._advance()

    def _put_off(self, error: StoreError) -> None:
        """Tries again later, and has what is damaged repaired."""
        index = self.applied_index + 1
        log.error("%s cannot apply entry %d: %s", self._core.node, index, error)
        if isinstance(error, DerivedDamageError):
            self._suspect_derived(error.log_position)
        elif isinstance(error, DamagedError):
            self._suspect(index)
        if isinstance(error, DamagedError):
            self._wait_for_repair(error)
        self._try_later()

    def _wait_for_repair(self, error: DamagedError) -> None:
        now = self._loop.time()
        if self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since >= REPAIR_SECONDS:
            self._unrepaired(self.applied_index + 1, str(error))

    def _try_later(self) -> None:
        self._reading = True
        self._loop.call_later(APPLY_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._reading = False
        if self._lifecycle.alive:
            self._advance()

    def _entries_read(self, entries: list[Entry] | None, error: BaseException | None) -> None:
        self._reading = False
        if isinstance(error, DamagedError | DiskFullError) and self._lifecycle.alive:
            self._put_off(error)
            return
        if error is not None:
            self._lifecycle.fail(error)
            return
        if not self._lifecycle.alive:
            return
        for entry in entries or ():
            if not self._apply_one(entry):
                return
        self._caught_up()
        self._advance()
