"""Builds small logs for the tests of the store."""

from __future__ import annotations

import random

from simulator.engine.disk import SimulatedFileSystem
from store.io.filesystem import FileSystem
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry
from store.log.layout import next_position
from store.replica import ReplicaStore, StoreConfig
from store.state.checkpoint import Checkpoint

DIRECTORY = "/data/n0"
CONFIG = StoreConfig("broker-a", "n0", segment_size=400, min_free_bytes=0, index_rows_per_file=4)


def simulated(
    seed: int = 1, *, capacity: int | None = None, sector_size: int = 512
) -> SimulatedFileSystem:
    return SimulatedFileSystem(random.Random(seed), capacity=capacity, sector_size=sector_size)


def open_store(fs: FileSystem, config: StoreConfig = CONFIG) -> ReplicaStore:
    return ReplicaStore.open(fs, DIRECTORY, config)


class Writer:
    """Makes entries that follow a log, as a leader does."""

    def __init__(self, segment_size: int = CONFIG.segment_size) -> None:
        self.segment_size = segment_size
        self.entries: list[Entry] = []

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    @property
    def chain_crc(self) -> int:
        return self.entries[-1].chain_crc if self.entries else 0

    def make(self, body: bytes = b"body", term: int = 1) -> Entry:
        """The next entry of the log."""
        index = len(self.entries)
        position = next_position(self.end, HEADER_SIZE + len(body), self.segment_size)
        entry = build_entry(EntryKind.DATA, index, term, position, self.chain_crc, [body])
        self.entries.append(entry)
        return entry

    def make_many(self, count: int, size: int = 30, term: int = 1) -> list[Entry]:
        return [self.make(bytes([len(self.entries) % 251]) * size, term) for _ in range(count)]

    def cut(self, first_index: int) -> None:
        """Forgets the entries from ``first_index`` on."""
        del self.entries[first_index:]

    def checkpoint(self, index: int) -> Checkpoint:
        """A checkpoint on an entry of this log."""
        entry = self.entries[index]
        starts: list[tuple[int, int]] = []
        for earlier in self.entries[: index + 1]:
            if not starts or starts[-1][0] != earlier.term:
                starts.append((earlier.term, earlier.index))
        return Checkpoint(
            index=index,
            end_position=entry.end,
            chain_crc=entry.chain_crc,
            term=entry.term,
            term_starts=tuple(starts),
            commit_index=index,
            state=b"state %d" % index,
        )


def contents(store: ReplicaStore) -> list[bytes]:
    """The bytes of every entry that the store holds, read and checked."""
    if store.last_index < store.first_index:
        return []
    entries: list[Entry] = []
    while not entries or entries[-1].index < store.last_index:
        first = entries[-1].index + 1 if entries else store.first_index
        entries += store.read_entries(first, store.last_index, 200)
    return [bytes(entry.data) for entry in entries]


def data_of(entries: list[Entry]) -> list[bytes]:
    return [bytes(entry.data) for entry in entries]


def save_mark(store: ReplicaStore, entry: Entry, commit_index: int = -1) -> bool:
    """Marks the log as durable up to ``entry``."""
    return store.save_mark(entry.index, entry.end, entry.chain_crc, commit_index)
