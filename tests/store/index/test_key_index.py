"""The key index against a plain list of rows: through flushes, restarts, crashes and expiry."""

from __future__ import annotations

import errno
import sys

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DamagedError
from store.index.key_file import HEADER
from store.index.key_index import KeyIndex
from store.message.batch import KEY_ROW
from tests.store.small_logs import simulated
from tests.support.search_effort import searching

DIRECTORY = "/data/keyindex"
ALWAYS = (0, 10**12)
EntryIndexRow = tuple[int, int, int]


def pack(rows: list[EntryIndexRow]) -> bytes:
    return b"".join(KEY_ROW.pack(*row) for row in rows)


def lookup(
    rows: list[EntryIndexRow], key_hash: int, begin_ms: int, end_ms: int, limit: int
) -> list[int]:
    """The answer, told the long way."""
    first, last = begin_ms // 1000, end_ms // 1000
    found = [place for found, place, time in rows if found == key_hash and first <= time <= last]
    return sorted(found, reverse=True)[:limit]


def flush(index: KeyIndex) -> None:
    job = index.begin_flush()
    if job is not None:
        job.run()
        job.finish()


class KeyLife(RuleBasedStateMachine):
    """Rows come in the order of their positions; a checkpoint is what a restart goes back to."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.fs = simulated(seed)
        self.index = KeyIndex(self.fs, DIRECTORY)
        self.index.restore(0)
        self.rows: list[EntryIndexRow] = []
        self.end = 0
        self.saved: tuple[int, list[EntryIndexRow]] = (0, [])
        self.expired = 0

    @rule(hashes=st.lists(st.integers(0, 3), min_size=1, max_size=6), seconds=st.integers(0, 3))
    def append(self, hashes: list[int], seconds: int) -> None:
        time = (self.rows[-1][2] if self.rows else 0) + seconds
        added = [(key, self.end + 10 * number, time) for number, key in enumerate(hashes)]
        self.end += 10 * len(hashes)
        self.index.append(pack(added))
        self.rows += added

    @rule()
    def checkpoint(self) -> None:
        flush(self.index)
        self.saved = (self.end, list(self.rows))

    @rule()
    def flush_without_a_checkpoint(self) -> None:
        flush(self.index)

    @rule()
    def lose_power(self) -> None:
        self.fs.power_loss()
        self.restart()

    @rule()
    def die(self) -> None:
        self.fs.crash()
        self.restart()

    def restart(self) -> None:
        self.end, rows = self.saved
        self.rows = list(rows)
        self.index = KeyIndex(self.fs, DIRECTORY)
        self.index.restore(self.end)

    @rule(share=st.floats(0, 1))
    def expire(self, share: float) -> None:
        self.expired = max(self.expired, round(share * self.end))
        self.index.expire(self.expired)

    @rule()
    def release(self) -> None:
        """A checkpoint is saved, and nobody starts from an earlier one."""
        self.index.release(self.expired)

    @invariant()
    def finds_what_was_appended_and_not_expired(self) -> None:
        kept = [row for row in self.rows if row[1] >= self.expired]
        for key in range(4):
            found = self.index.lookup(key, *ALWAYS, 1000)
            # Files go as a whole: rows below may be found still, and the caller then finds no
            # message; none above may be missing.
            assert [place for place in found if place >= self.expired] == lookup(
                kept, key, *ALWAYS, 1000
            )
            assert set(found) <= set(lookup(self.rows, key, *ALWAYS, 1000))


TestKeyLife = KeyLife.TestCase
TestKeyLife.settings = searching(60, 25)


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


ROWS = st.lists(st.tuples(st.integers(0, 2**32 - 1) | st.integers(0, 3), st.integers(0, 5)))


@given(
    st.lists(ROWS, max_size=4),
    st.integers(0, 3),
    st.tuples(st.integers(0, 6000), st.integers(0, 6000)),
    st.integers(0, 5),
    st.booleans(),
)
def test_a_lookup_agrees_with_looking_at_every_row(
    parts: list[list[tuple[int, int]]],
    key: int,
    times: tuple[int, int],
    limit: int,
    has_numpy: bool,
) -> None:
    index = KeyIndex(simulated(), DIRECTORY)
    rows: list[EntryIndexRow] = []
    for number, part in enumerate(parts):
        added = [(found, 1000 * number + at, time) for at, (found, time) in enumerate(part)]
        index.append(pack(added))
        rows += added
        if number < 3:
            flush(index)
    with pytest.MonkeyPatch.context() as patch:
        if not has_numpy:  # as soon after a start
            patch.delitem(sys.modules, "numpy", raising=False)
        found = index.lookup(key, *times, limit)
    assert found == lookup(rows, key, *times, limit)
    index.append(b"")  # the memory is held by nobody


@pytest.mark.parametrize("has_numpy", [True, False])
def test_a_hash_is_not_found_across_the_border_of_two_rows(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch, has_numpy: bool
) -> None:
    if has_numpy:
        pytest.importorskip("numpy")
    else:
        monkeypatch.delitem(sys.modules, "numpy", raising=False)
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(1, 0x0000000500000005, 5), (5, 7, 5)]))
    assert index.lookup(5, *ALWAYS, 10) == [7]


def test_rows_appended_during_a_flush_are_found_before_and_after(fs: SimulatedFileSystem) -> None:
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(1, 10, 0)]))
    job = index.begin_flush()
    assert job is not None
    index.append(pack([(1, 20, 0)]))
    job.run()
    assert index.lookup(1, *ALWAYS, 10) == [20, 10]
    job.finish()
    assert index.lookup(1, *ALWAYS, 10) == [20, 10]


def test_nothing_to_flush_is_no_job(fs: SimulatedFileSystem) -> None:
    assert KeyIndex(fs, DIRECTORY).begin_flush() is None


def test_a_file_is_named_by_its_first_record_and_sorted_by_hash(fs: SimulatedFileSystem) -> None:
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(9, 50, 3), (2, 60, 4), (2, 70, 2)]))
    flush(index)
    [path] = [path for path in fs.files() if path.startswith(DIRECTORY)]
    assert path == f"{DIRECTORY}/{50:020d}"
    data = fs.durable_bytes(path)
    assert data is not None
    rows = pack([(2, 60, 4), (2, 70, 2), (9, 50, 3)])
    assert data[HEADER.size :] == rows + (2).to_bytes(4, "big") + crc32c(rows).to_bytes(4, "big")
    assert HEADER.unpack(data[: HEADER.size])[2:7] == (50, 70, 2, 4, 3)


def test_files_behind_a_checkpoint_are_removed_whatever_they_hold(fs: SimulatedFileSystem) -> None:
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(1, 10, 0)]))
    flush(index)
    index.append(pack([(1, 20, 0)]))
    flush(index)
    fs.overwrite(f"{DIRECTORY}/{20:020d}", b"garbage", 0)
    again = KeyIndex(fs, DIRECTORY)
    again.restore(15)
    assert again.lookup(1, *ALWAYS, 10) == [10]
    assert [path for path in fs.files() if path.startswith(DIRECTORY)] == [f"{DIRECTORY}/{10:020d}"]


@pytest.mark.parametrize(("size", "what"), [(20, "cut short"), (HEADER.size + 8, "1 rows are not")])
def test_a_file_below_a_checkpoint_that_is_cut_is_damage(
    fs: SimulatedFileSystem, size: int, what: str
) -> None:
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(1, 10, 0)]))
    flush(index)
    fs.cut(f"{DIRECTORY}/{10:020d}", size)
    again = KeyIndex(fs, DIRECTORY)
    again.restore(100)
    with pytest.raises(DamagedError, match=what):
        again.lookup(1, *ALWAYS, 10)


def test_a_file_that_cannot_be_read_or_is_gone_is_damage(fs: SimulatedFileSystem) -> None:
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(1, 10, 0)]))
    flush(index)
    fs.inject(Fault(1, errno.EIO, operations=("pread",)))
    with pytest.raises(DamagedError, match=r"keyindex.*cannot be read"):
        index.lookup(1, *ALWAYS, 10)
    assert index.lookup(1, *ALWAYS, 10) == [10]
    fs.vanish(f"{DIRECTORY}/{10:020d}")
    with pytest.raises(DamagedError, match=r"keyindex.*the file is missing"):
        index.lookup(1, *ALWAYS, 10)


def test_a_file_of_another_version_is_damage(fs: SimulatedFileSystem) -> None:
    index = KeyIndex(fs, DIRECTORY)
    index.append(pack([(1, 10, 0)]))
    flush(index)
    fs.overwrite(f"{DIRECTORY}/{10:020d}", b"\x03", 7)
    again = KeyIndex(fs, DIRECTORY)
    again.restore(100)
    with pytest.raises(DamagedError, match="version 1 or 2"):
        again.lookup(1, *ALWAYS, 10)


def test_files_whose_records_all_expired_are_removed(fs: SimulatedFileSystem) -> None:
    index = KeyIndex(fs, DIRECTORY)
    for position in (10, 20, 30):
        index.append(pack([(1, position, 0)]))
        flush(index)
    index.expire(21)
    assert len(index.files) == 3
    index.release(21)
    assert index.lookup(1, *ALWAYS, 10) == [30]
    assert [path for path in fs.files() if path.startswith(DIRECTORY)] == [f"{DIRECTORY}/{30:020d}"]
