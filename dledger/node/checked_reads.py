"""Reads the bytes of applied entries for consumers, and never gives out damaged ones.

The checksum of a record covers its body only. The checksum of its entry covers all of it. So whole
entries are read, checked, and kept for a while for a consumer that reads on. The scrub is told of a
damaged entry and fetches it from a peer. The reader must ask again, or ask another member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dledger.node.executor import Executor
from dledger.node.read_cache import ReadCache
from store.errors import (
    DamagedError,
    MisplacedError,
    NotReplicatedYetError,
    OutOfRangeError,
    StoreError,
)
from store.io.filesystem import Bytes
from store.log.entry_reader import EntryRange
from store.replica import ReplicaStore

RANGE_BYTES = 512 << 10
"""Bytes that are read at once for a reader that reads on; for others it is one entry."""

COPIED_BELOW = 1 / 8
"""If a reader wants less than this share of a run, it gets a copy. A view keeps the whole run in
memory, and random reads would keep many. So an answer takes at most eight times the memory of its
own bytes."""

JOB_BYTES = 4 << 20
"""After so many bytes, other jobs of the thread have their turn."""

Done: TypeAlias = Callable[[Sequence[Bytes] | None, BaseException | None], None]


class CheckedReads:
    """Of one node. Calls come from the event loop; reading is done by the executor for reads."""

    def __init__(
        self,
        *,
        store: ReplicaStore,
        reads: Executor,
        applied_index: Callable[[], int],
        suspect: Callable[[int], None],
        suspect_derived: Callable[[int], None],
        repair_index: Callable[[], None],
    ) -> None:
        """``suspect`` has a damaged entry looked at, ``suspect_derived`` what is derived from the
        log from an entry on, and ``repair_index`` the entry index."""
        self._store = store
        self._applied_index = applied_index
        self._suspect = suspect
        self._suspect_derived = suspect_derived
        self._repair_index = repair_index
        self._reads = reads
        self._suspecting = False
        """Whether the entry of a wrong derived file is being looked up."""
        self._cache = ReadCache()
        self._loaded = 0
        """Bytes of entries read so far. Used by the thread for reads."""

    def at_hand(self, position: int, size: int) -> Bytes | None:
        """These bytes of one entry, if they are in memory."""
        if position < self._store.first_position:
            return None
        found = self._cache.find(position, size)
        return None if found is None else _part(found.run, found.start, size)

    def read(self, ranges: Sequence[tuple[int, int]], done: Done) -> None:
        """Reads bytes, each position and size within one entry.

        ``done`` is told them, or of a :class:`~store.errors.StoreError`: ``MisplacedError`` if
        no one entry has the bytes, ``NotReplicatedYetError`` if the own disk has yet to get
        them, another ``OutOfRangeError`` if the log does not hold them (they may have expired),
        and ``DamagedError`` if an entry has rotted.
        """
        self._go_on(ranges, [], set(), done)

    def _go_on(
        self, ranges: Sequence[tuple[int, int]], parts: list[Bytes], suspects: set[int], done: Done
    ) -> None:
        """Reads what is not yet among the parts, a job at a time."""

        def load() -> None:
            enough = self._loaded + JOB_BYTES
            while len(parts) < len(ranges) and self._loaded < enough:
                parts.append(self._read(*ranges[len(parts)], suspects))

        def came(_none: None, error: BaseException | None) -> None:
            if error is None and len(parts) < len(ranges):
                self._go_on(ranges, parts, suspects, done)
                return
            if self._store.index_needs_repair:
                self._repair_index()
            for index in sorted(suspects):
                self._suspect(index)
            done(parts if error is None else None, error)

        self._reads.submit(load, came)

    def suspect_derived(self, position: int) -> None:
        """What is derived from the log there, or a little behind, is wrong: it is compared now.

        One call at a time: a reader that still finds something wrong calls again, and each read of
        many would else add a job that delays all others.
        """
        if self._suspecting:
            return
        self._suspecting = True

        def found(index: int | None, error: BaseException | None) -> None:
            self._suspecting = False
            if index is not None:
                self._suspect_derived(index)
            elif error is not None and not isinstance(error, StoreError):
                raise error

        self._reads.submit(lambda: self._store.entry_at(position, self._last_index()), found)

    def _last_index(self) -> int:
        return min(self._applied_index(), self._store.last_index)

    def _read(self, position: int, size: int, suspects: set[int]) -> Bytes:
        """In the thread for reads. ``suspects`` gets the entries from which on one is damaged."""
        found = self.at_hand(position, size)
        if found is not None:
            return found
        if position + size > self._store.end_position:
            # A leader applies what its own disk may not have yet.
            raise NotReplicatedYetError(f"the log does not go on to position {position + size} yet")
        run = self._run_at(position, suspects)
        start = position - run.position
        if not 0 <= start <= run.first_size - size:
            raise MisplacedError(position, size)
        self._loaded += len(run.data)
        self._cache.add(run)
        return _part(run, start, size)

    def _run_at(self, position: int, suspects: set[int]) -> EntryRange:
        """Begins with the entry that has the byte at ``position``, if one has."""
        last_index = self._last_index()
        index = self._store.entry_at(position, last_index)
        if self._cache.has_before(position, RANGE_BYTES):
            last, max_bytes = last_index, RANGE_BYTES
        else:
            last, max_bytes = index, 1
        try:
            run = self._load(index, last, max_bytes, suspects)
        except DamagedError:
            if last == index:
                raise
            # Another entry of the run may be the damaged one.
            run = self._load(index, index, 1, suspects)
        if index == last_index and position >= run.position + run.first_size:
            raise OutOfRangeError(f"position {position} is behind entry {index}, the last one")
        return run

    def _load(self, index: int, last_index: int, max_bytes: int, suspects: set[int]) -> EntryRange:
        try:
            return self._store.read_range(index, last_index, max_bytes)
        except DamagedError:
            suspects.add(index)
            raise


def _part(run: EntryRange, start: int, size: int) -> Bytes:
    part = run.data[start : start + size]
    return bytes(part) if size < len(run.data) * COPIED_BELOW else part
