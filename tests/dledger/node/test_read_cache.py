"""The cache of checked entries against a list that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.node.read_cache import ReadCache
from store.log.entry_reader import EntryRange

RUN = st.tuples(st.integers(0, 60), st.integers(1, 20))
LOG = bytes(range(100))


def run_at(begin: int, size: int) -> EntryRange:
    return EntryRange(begin, memoryview(LOG)[begin : begin + size], 1)


@given(st.lists(RUN, max_size=30), RUN, st.integers(1, 30))
def test_what_is_found_is_what_a_search_finds(
    runs: list[tuple[int, int]], wanted: tuple[int, int], distance: int
) -> None:
    cache = ReadCache(1 << 20, 100)
    for run in runs:
        cache.add(run_at(*run))
    position, size = wanted
    found = cache.find(position, size)
    has = any(begin <= position and position + size <= begin + length for begin, length in runs)
    assert (found is not None) == has
    if found is not None:
        data = found.run.data[found.start : found.start + size]
        assert data == LOG[position : position + size]
    # A run within another is not kept, so only the ends of the others are known.
    kept = [
        begin + length
        for begin, length in runs
        if not any(
            (other, longer) != (begin, length)
            and other <= begin
            and begin + length <= other + longer
            for other, longer in runs
        )
    ]
    assert cache.has_before(position, distance) == any(
        0 <= position - end < distance for end in kept
    )


@given(st.lists(RUN, min_size=1, max_size=30), st.integers(20, 60), st.integers(1, 5))
def test_what_is_kept_fits_and_has_the_newest(
    runs: list[tuple[int, int]], bytes_max: int, runs_max: int
) -> None:
    cache = ReadCache(bytes_max, runs_max)
    for run in runs:
        cache.add(run_at(*run))
        assert cache.find(*run) is not None
        assert cache._bytes == sum(len(kept.data) for kept in cache._runs.values()) <= bytes_max
        assert sorted(cache._runs) == cache._positions
        assert len(cache._runs) <= runs_max


def test_what_was_used_last_stays() -> None:
    cache = ReadCache(1 << 20, 2)
    for begin in (0, 20):
        cache.add(run_at(begin, 5))
    assert cache.find(0, 5)
    cache.add(run_at(40, 5))
    assert [cache.find(begin, 5) is not None for begin in (0, 20, 40)] == [True, False, True]
