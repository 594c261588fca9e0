"""Checked entries in memory, for consumers of older messages.

An entry holds messages of several queues, so the pulls of one queue read what those of the others
need as well. Each group that reads singly sent messages of eight queues needs some 3 MiB: 256
messages of one queue lie among 2,048. The memory is enough for ten such groups, each at a place of
its own.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from store.log.entry_reader import EntryRange

CACHED_BYTES = 48 << 20
CACHED_RUNS = 192


class Found(NamedTuple):
    """A run that has the bytes, and where in it they begin."""

    run: EntryRange
    start: int


class ReadCache:
    """The runs of entries that were used last. For any thread.

    No run lies within another. So in the order of their beginnings, they are in the order of their
    ends as well.
    """

    def __init__(self, bytes_max: int = CACHED_BYTES, runs_max: int = CACHED_RUNS) -> None:
        self._bytes_max = bytes_max
        self._runs_max = runs_max
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, EntryRange] = OrderedDict()
        """By position; the run that was used last comes last."""
        self._positions: list[int] = []
        """The same positions in order."""
        self._bytes = 0

    def find(self, position: int, size: int) -> Found | None:
        """The run with these bytes of the log."""
        with self._lock:
            place = bisect_right(self._positions, position) - 1
            if place < 0:
                return None
            begin = self._positions[place]
            run = self._runs[begin]
            start = position - begin
            if start + size > len(run.data):
                return None
            self._runs.move_to_end(begin)
            return Found(run, start)

    def has_before(self, position: int, distance: int) -> bool:
        """Whether a run ends at ``position``, or less than ``distance`` bytes before it."""
        with self._lock:
            for begin in reversed(self._positions[: bisect_right(self._positions, position)]):
                behind = position - begin - len(self._runs[begin].data)
                if behind >= 0:
                    return behind < distance
            return False

    def add(self, run: EntryRange) -> None:
        """Adds a run, and drops those that were not used for longest, so that the rest fits."""
        begin, end = run.position, run.position + len(run.data)
        with self._lock:
            place = bisect_right(self._positions, begin)
            if place:
                before = self._runs[self._positions[place - 1]]
                if before.position + len(before.data) >= end:
                    return
                place -= before.position == begin
            while place < len(self._positions):
                within = self._runs[self._positions[place]]
                if within.position + len(within.data) > end:
                    break
                self._drop(within.position)
            self._positions.insert(place, begin)
            self._runs[begin] = run
            self._bytes += len(run.data)
            while len(self._runs) > self._runs_max or self._bytes > self._bytes_max:
                self._drop(next(iter(self._runs)))

    def _drop(self, begin: int) -> None:
        self._bytes -= len(self._runs.pop(begin).data)
        del self._positions[bisect_right(self._positions, begin) - 1]
