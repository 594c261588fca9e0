"""The scrub: data at rest is read again and again, and damage is repaired from a peer.

Disks lose bits of data that nobody reads. On the day when it is needed, the other copies may be
damaged too. So every committed entry is read at a bounded rate, pass after pass, on the background
executor. A damaged entry is named in the program's log and in the node's status. It is fetched from
a peer by its index, and written back if its chain CRC fits. Meanwhile the node goes on with what is
whole, but does not campaign (:mod:`dledger.node.health_monitor`). If a segment was found cut short
when the log was opened, its entries are read first, and count as damaged until then.

The state machine compares the derived files (ConsumeQueues, key index) with the entries just read,
and rebuilds them. Rows of the entry index are rebuilt here, so a node without peers keeps its
messages, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from heapq import nsmallest
from itertools import count, groupby

from dledger.node.derived_files import DerivedFiles, NothingDerived
from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.peer_calls import PeerCalls
from dledger.node.repairer import Repairer
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.raft.view import RaftView
from store.errors import DiskFullError, FatalDiskError, OutOfRangeError, StoreError
from store.log.entry import Entry
from store.log.entry_repair import CheckedRange
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

REPAIRS_KEPT = 50
DAMAGE_LISTED_MAX = 20

CUT_PAUSE_SECONDS = 1.0
"""Pace: after a read of a segment that is cut short failed."""

COMPARE_PAUSE_SECONDS = 1.0
"""Pace: after a comparison that failed, or found nothing wrong with derived files. The disk may be
full, or the log itself damaged there, and readers ask again as often as clients do."""


class Scrubber:
    """The scrubbing of one node. On the event loop."""

    def __init__(
        self,
        *,
        core: RaftView,
        store: ReplicaStore,
        calls: PeerCalls,
        background: Executor,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        bytes_per_second: int,
        pass_seconds: float,
        damaged_changed: Callable[[bool], None],
    ) -> None:
        """Reads at the given rate, and pauses for ``pass_seconds`` between two passes.
        ``damaged_changed`` is called when damage appears or is gone. A segment that was found cut
        short counts as damage at first.
        """
        self.damage: dict[int, str] = {}
        """What is damaged now: by index of the entry, file, byte and what is wrong there."""
        self.repaired: deque[str] = deque(maxlen=REPAIRS_KEPT)
        """What was damaged and is repaired, newest last."""
        self.passes = 0
        self.read_bytes = 0
        """Of the log, in passes."""
        self.entries_damaged = self.entries_repaired = 0
        """How many entries were ever found to be damaged, and how many of them became whole."""
        self.derived_repaired = 0
        """How often something derived from the log was found to be wrong, and made again."""
        self._core = core
        self._store = store
        self._lifecycle = lifecycle
        self._damaged_changed = damaged_changed
        self._background = background
        self._loop = loop
        self._bytes_per_second = bytes_per_second
        self._pass_seconds = pass_seconds
        self._next_index = -1  # -1: a new pass begins
        self._cut = list(store.recovered.cut_entries)  # those that were not read yet
        self._was_damaged = bool(self._cut)
        self._pass_check: DerivedFiles = NothingDerived()
        self._comparison: DerivedFiles = NothingDerived()
        self._comparing = False
        self._repairing_index = False
        self._first_index = 0
        self._repairer = Repairer(calls=calls, loop=loop, holes=self)
        self._timer: asyncio.TimerHandle | None = None

    def compare_derived(self, make_check: Callable[[], DerivedFiles]) -> None:
        """Has derived files compared with the log from now on.

        A check needs entries that follow each other. So the passes have one, and the comparisons
        of :meth:`suspect_derived` have another.
        """
        self._pass_check, self._comparison = make_check(), make_check()

    def start(self) -> None:
        """Begins the first pass when the node has had time to start."""
        self._timer = self._loop.call_later(self._pass_seconds, self._step)
        self._read_cut()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read_cut(self) -> None:
        if self._timer is None or self._lifecycle.failure is not None:
            return
        store = self._store
        held = range(store.first_index, store.last_index + 1)
        self._cut = [
            (max(first, held.start), min(last, held.stop - 1))
            for first, last in self._cut
            if first < held.stop and last >= held.start
        ]
        self._changed()
        if self._cut:
            first, last = self._cut[0]
            self._background.submit(
                lambda: store.check_entries(first, last, PIECE_BYTES), self._cut_read
            )

    def _cut_read(self, checked: CheckedRange | None, error: BaseException | None) -> None:
        if self._failed(error) or checked is None:
            # What it holds is as unknown as before.
            self._loop.call_later(CUT_PAUSE_SECONDS, self._read_cut)
            return
        _, last = self._cut.pop(0)
        if checked.next_index <= last:
            self._cut.insert(0, (checked.next_index, last))
        self._found(checked)
        self._read_cut()

    def suspect(self, index: int) -> None:
        """Somebody could not read this entry: it is checked now."""
        last = self._last_index()
        if index <= last:
            self._background.submit(lambda: self._check(index, last), self._suspected)

    def _suspected(
        self, found: tuple[CheckedRange, list[str]] | None, error: BaseException | None
    ) -> None:
        if not self._failed(error) and found is not None:
            self._tell(*found)

    def repair_index(self) -> None:
        """A read has come upon wrong rows of the entry index: they are written again now."""
        if not self._repairing_index:
            self._repairing_index = True
            self._background.submit(self._repair_rows, self._rows_repaired)

    def _rows_repaired(self, told: list[str] | None, error: BaseException | None) -> None:
        self._repairing_index = False
        if not self._failed(error):
            self._log_repaired(told or [])

    def suspect_derived(self, index: int) -> None:
        """A derived file is wrong for this entry or a later one. It is compared with the log from
        there on, at once and at the usual rate, until something is found."""
        if not self._comparing:
            self._comparing = True
            self._compare(index, begins=True)

    def _compare(self, index: int, *, begins: bool = False) -> None:
        last = self._last_index()
        if index > last or self._timer is None or self._lifecycle.failure is not None:
            self._end_comparison_later()
            return
        self._background.submit(
            lambda: self._look(self._comparison, index, last, begins=begins), self._compared
        )

    def _end_comparison_later(self) -> None:
        def end() -> None:
            self._comparing = False

        self._loop.call_later(COMPARE_PAUSE_SECONDS, end)

    def _compared(
        self, found: tuple[CheckedRange, list[str]] | None, error: BaseException | None
    ) -> None:
        if self._failed(error) or found is None:
            self._end_comparison_later()
            return
        self._tell(*found)
        checked, told = found
        if told:
            self._comparing = False  # a reader that still finds something wrong calls again
            return
        self._loop.call_later(
            max(checked.size, 1) / self._bytes_per_second, self._compare, checked.next_index
        )

    @property
    def damage_summary(self) -> list[str]:
        """What to tell of the damage: that of the first entries, and how much more there is."""
        told = [self.damage[index] for index in nsmallest(DAMAGE_LISTED_MAX, self.damage)]
        if len(self.damage) > len(told):
            told.append(f"and {len(self.damage) - len(told)} more entries")
        if self._cut:
            told.append("a segment is cut short, and what it holds is being looked at")
        return told

    @property
    def progress(self) -> float:
        """Which share of the log, from 0 to 1, the present pass has read."""
        first, last = self._store.first_index, self._last_index()
        return min(max(self._next_index - first, 0) / max(last + 1 - first, 1), 1.0)

    # --- the passes

    def _last_index(self) -> int:
        core = self._core
        return min(core.commit_index, core.durable_index)

    def _step(self) -> None:
        if self._timer is None or self._lifecycle.failure is not None:
            return
        last = self._last_index()
        begins = self._next_index < 0
        first = max(self._next_index, self._store.first_index)
        if first > last:
            self._background.submit(self._pass_check.end_pass, self._pass_ended)
            return
        self._background.submit(
            lambda: self._look(self._pass_check, first, last, begins=begins), self._checked
        )

    def _look(
        self, derived: DerivedFiles, first: int, last: int, *, begins: bool
    ) -> tuple[CheckedRange, list[str]]:
        """Looks at a piece; on the background executor."""
        restored = []
        if begins:
            restored = self._store.restore_removed()
            derived.begin_pass()
        checked, repaired = self._check(first, last)
        return checked, restored + repaired + derived.check(checked.entries)

    def _check(self, first: int, last: int) -> tuple[CheckedRange, list[str]]:
        """Checks a piece, and repairs what needs no peer: rows of the entry index, and paddings."""
        store = self._store
        checked = store.check_entries(first, last, PIECE_BYTES)
        repaired = self._repair_rows()
        paddings = list(filter(store.repair_padding, checked.damage))
        if paddings:
            repaired += [f"padding: {checked.damage[each]}" for each in paddings]
            checked = store.check_entries(first, last, PIECE_BYTES)
        return checked, repaired

    def _repair_rows(self) -> list[str]:
        told = []
        numbers = count()
        for _, run in groupby(self._store.repair_index(), key=lambda row: row - next(numbers)):
            first, *others = run
            rows = f"rows {first} to {others[-1]}" if others else f"row {first}"
            told.append(f"{rows} of the entry index")
        return told

    def _again(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer = self._loop.call_later(seconds, self._step)

    def _checked(
        self, found: tuple[CheckedRange, list[str]] | None, error: BaseException | None
    ) -> None:
        if self._failed(error) or found is None:
            self._next_index = -1
            self._again(self._pass_seconds)
            return
        self._tell(*found)
        checked, _ = found
        self._next_index = checked.next_index
        self.read_bytes += checked.size
        self._again(max(checked.size, 1) / self._bytes_per_second)

    def _pass_ended(self, told: list[str] | None, error: BaseException | None) -> None:
        if not self._failed(error):
            self._log_repaired(told or [])
            self.passes += 1
        self._next_index = -1
        self._again(self._pass_seconds)

    def _failed(self, error: BaseException | None) -> bool:
        """Whether the piece could not be checked. An entry that expired meanwhile is no failure."""
        if error is None:
            return False
        if isinstance(error, OutOfRangeError | DiskFullError | FileNotFoundError):
            log.info("the scrub starts over: %s", error)
        elif isinstance(error, StoreError) and not isinstance(error, FatalDiskError):
            log.error("%s: the scrub found damage: %s", self._core.node, error)
        elif isinstance(error, OSError):
            self._lifecycle.fail(FatalDiskError(f"scrubbing failed: {error}"))
        else:
            self._lifecycle.fail(error)
        return True

    def _tell(self, checked: CheckedRange, told: Sequence[str]) -> None:
        self._log_repaired(told)
        self._found(checked)

    def _log_repaired(self, told: Sequence[str]) -> None:
        for text in told:
            log.error("%s: damage, repaired from the log: %s", self._core.node, text)
            self.repaired.append(text)
            self.derived_repaired += 1

    # --- what was found

    def _found(self, checked: CheckedRange) -> None:
        new = {
            index: str(error) for index, error in checked.damage.items() if index not in self.damage
        }
        if new:
            index = min(new)
            others = f" (and {len(new) - 1} more up to {max(new)})" if len(new) > 1 else ""
            log.error("%s: entry %d%s is damaged: %s", self._core.node, index, others, new[index])
            self.damage.update(new)
            self.entries_damaged += len(new)
        for entry in checked.entries:
            if self.damage.pop(entry.index, None) is not None:
                self.entries_repaired += 1
        self._changed()

    def _changed(self) -> None:
        first_index = self._store.first_index
        if first_index != self._first_index:
            self._first_index = first_index
            for index in [index for index in self.damage if index < first_index]:
                del self.damage[index]  # it has expired
        damaged = bool(self.damage or self._cut)
        if damaged != self._was_damaged:
            self._was_damaged = damaged
            self._damaged_changed(damaged)
        if self.damage:
            self._repairer.look()

    # --- what is damaged: see Holes

    def sources(self) -> Sequence[str]:
        """See :class:`~dledger.node.repairer.Holes`."""
        core = self._core
        return sorted(core.peers, key=lambda peer: (peer != core.leader, peer))

    def wanted(self, rounds: int) -> tuple[int, int] | None:
        """The first damaged entry behind a whole one: only there it can be checked that a peer's
        entry fits. In the next round the next such entry, as all peers may have expired the
        first."""
        if not self.damage:
            return None
        behind_whole = (index for index in self.damage if index - 1 not in self.damage)
        index = next(behind_whole)
        if rounds:
            others = [index, *behind_whole]
            index = others[rounds % len(others)]
        return index, index

    def fill(self, peer: str, entries: Sequence[Entry], done: Callable[[bool], None]) -> None:
        """See :class:`~dledger.node.repairer.Holes`."""
        entry = entries[0]

        def ended(_none: None, error: BaseException | None) -> None:
            whole = not self._failed(error)
            if whole:
                self.entries_repaired += entry.index in self.damage
                told = self.damage.pop(entry.index, f"entry {entry.index}")
                self.repaired.append(f"entry {entry.index}: {told}")
                log.warning("%s: entry %d is repaired, from %s", self._core.node, entry.index, peer)
                self._changed()
            done(whole)

        self._background.submit(lambda: self._store.repair_entry(entry), ended)

    def expired(self, peer: str, index: int) -> None:
        """See :class:`~dledger.node.repairer.Holes`. This node will soon expire it too, or takes
        the leader's checkpoint (:mod:`dledger.node.state_divergence`)."""
