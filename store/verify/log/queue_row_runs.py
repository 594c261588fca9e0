"""Collects the queue rows of entries by queue, so that one CRC is computed for many rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store.index.block_seals import ROW_SIZE
from store.verify.log.batch_columns import BatchColumns, TopicNumbers
from store.verify.log.byte_columns import Numbers


@dataclass(slots=True)
class QueueRowRun:
    """Messages of one queue with consecutive offsets, from one or more entries.

    ``entry``: index and position of the first entry. ``part_indexes``: the indexes of the entries.
    ``part_offsets``: the first offset in each of them.
    """

    key: tuple[str, int]
    first_offset: int
    end_offset: int
    entry: tuple[int, int]
    rows: bytes
    part_offsets: Numbers
    part_indexes: Numbers

    def index_of(self, offset: int) -> int:
        """The index of the entry that holds an offset."""
        return int(self.part_indexes[np.searchsorted(self.part_offsets, offset, "right") - 1])


class QueueRowRuns:
    """Collects runs as columns: topic, queue, first offset, number of messages, and index and
    position of the entry.
    """

    def __init__(self, topics: TopicNumbers) -> None:
        self.count = 0
        """The number of rows collected."""
        self._topics = topics
        self._runs: list[Numbers] = []
        self._rows: list[NDArray[np.void]] = []

    def add(self, columns: BatchColumns, first: int = 0, end: int | None = None) -> None:
        """Adds the runs of the entries from number ``first`` to before number ``end``."""
        end = len(columns.entries) if end is None else end
        runs = columns.runs
        begin, stop = np.searchsorted(runs.entries, (first, end)).tolist()
        if begin == stop:
            return
        indexes = np.array([entry.index for entry in columns.entries])
        positions = np.array([entry.position for entry in columns.entries])
        entries = runs.entries[begin:stop]
        counts = runs.counts[begin:stop]
        self._runs.append(
            np.stack(
                (
                    runs.topics[begin:stop],
                    runs.queues[begin:stop],
                    runs.offsets[begin:stop],
                    counts,
                    indexes[entries],
                    positions[entries],
                )
            )
        )
        first_row, count = int(runs.counts[:begin].sum()), int(counts.sum())
        # As bytes, because NumPy changes the byte order of fields when it concatenates them.
        rows = columns.rows.view(f"V{ROW_SIZE}")
        self._rows.append(rows[first_row : first_row + count])
        self.count += count

    def take(self) -> list[QueueRowRun]:
        """Removes and returns all runs, joined by queue, in the order of their first entries."""
        if not self._runs:
            return []
        runs, rows = np.concatenate(self._runs, axis=1), np.concatenate(self._rows)
        self._runs, self._rows, self.count = [], [], 0
        starts = np.cumsum(runs[3]) - runs[3]
        order = np.lexsort((runs[1], runs[0]))
        topics, queues, offsets, counts, indexes, positions = runs = runs[:, order]
        ends = offsets + counts
        is_first = np.ones(len(order), bool)
        is_first[1:] = (
            (topics[1:] != topics[:-1]) | (queues[1:] != queues[:-1]) | (offsets[1:] != ends[:-1])
        )
        sorted_ends = np.cumsum(counts)
        moved = np.repeat(starts[order] - (sorted_ends - counts), counts)
        data = rows[moved + np.arange(len(rows))].tobytes()
        firsts = np.flatnonzero(is_first)
        lasts = np.append(firsts[1:], len(order)) - 1
        begins = (sorted_ends - counts)[firsts] * ROW_SIZE
        stops = sorted_ends[lasts] * ROW_SIZE
        return [
            QueueRowRun(
                (self._topics.names[topics[first]], int(queues[first])),
                int(offsets[first]),
                int(ends[last]),
                (int(indexes[first]), int(positions[first])),
                data[begin:stop],
                offsets[first : last + 1],
                indexes[first : last + 1],
            )
            for _, first, last, begin, stop in sorted(
                zip(
                    order[firsts].tolist(),
                    firsts.tolist(),
                    lasts.tolist(),
                    begins.tolist(),
                    stops.tolist(),
                    strict=True,
                )
            )
        ]
