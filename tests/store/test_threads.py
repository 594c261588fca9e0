"""The storage thread, the background thread and readers at the same time, on real files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from store.errors import OutOfRangeError
from store.io.os_filesystem import OsFileSystem
from store.log import segment
from store.replica import ReplicaStore, StoreConfig
from tests.store.small_logs import Writer, contents, data_of

SEGMENT_SIZE = 64 << 10
CONFIG = StoreConfig("broker-a", "n0", segment_size=SEGMENT_SIZE, min_free_bytes=0)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros in steps so small that threads meet often."""
    monkeypatch.setattr(segment, "ZERO_STEP", 512)


def together(work: Callable[[], None], *others: Callable[[threading.Event], None]) -> None:
    """Runs ``work`` here and the others in threads, until it is done; their errors are raised."""
    done = threading.Event()
    failures: list[BaseException] = []

    def run(other: Callable[[threading.Event], None]) -> None:
        try:
            other(done)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def test_zeros_written_ahead_never_meet_entries(tmp_path: Path) -> None:
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), CONFIG)
    store.save_hard_state(1, "")
    writer = Writer(SEGMENT_SIZE)

    def write() -> None:
        for _ in range(300):
            store.append(writer.make_many(3, size=400))

    def prepare(done: threading.Event) -> None:
        while not done.is_set():
            store.preallocate_next()

    together(write, prepare)
    store.sync()
    assert contents(store) == data_of(writer.entries)
    store.close()
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), CONFIG)
    assert store.recovered.tail == writer.entries
    assert store.recovered.torn_bytes_cut == 0
    store.close()


@pytest.mark.minutes
def test_readers_see_whole_entries_while_others_append_truncate_checkpoint_and_expire(
    tmp_path: Path,
) -> None:
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), CONFIG)
    store.save_hard_state(1, "")
    writer = Writer(SEGMENT_SIZE)

    def write() -> None:
        for turn in range(5000):
            if turn >= 50:
                if store.first_index:
                    break
                time.sleep(0.001)  # the others have had little time so far
            store.append(writer.make_many(8, size=500 + turn))
            store.sync()
            if turn % 5 == 4:
                first = len(writer.entries) - 6
                store.truncate(first)
                writer.cut(first)

    def keep(done: threading.Event) -> None:
        while not done.is_set():
            store.preallocate_next()
            # What lies sixteen entries back is never truncated here, as if it were committed.
            index = store.last_index - 16
            if index > 0 and writer.entries[index].end <= store.synced_position:
                assert store.save_checkpoint(writer.checkpoint(index))
                store.expire(writer.entries[max(store.first_index, index - 50)].position)

    def read(done: threading.Event) -> None:
        while not done.is_set():
            first = store.first_index
            try:
                entries = store.read_entries(first, store.last_index, 20_000)
            except OutOfRangeError:
                continue  # truncated or expired meanwhile
            assert [entry.index for entry in entries] == list(range(first, first + len(entries)))

    together(write, keep, read)
    assert store.first_index > 0
    assert contents(store) == data_of(writer.entries)[store.first_index :]
    store.close()
