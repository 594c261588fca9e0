"""Which segments retention lets go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.io.disk_watermarks import DiskSpace, DiskWatermarks
from store.log.retention_policy import (
    HOUR_MS,
    RetentionPolicy,
    SegmentStats,
    expiry_position,
    forced_expiry_position,
)

KEEP_ALL = RetentionPolicy(age_ms_max=None, log_bytes_max=None)
SEGMENTS = [
    SegmentStats(100, 200, 1 * HOUR_MS),
    SegmentStats(200, 300, 2 * HOUR_MS),
    SegmentStats(300, 350, 3 * HOUR_MS),
]


def test_an_empty_log_has_nothing_to_forget() -> None:
    assert expiry_position([], RetentionPolicy(), now_ms=0) == 0


def test_without_bounds_everything_stays() -> None:
    assert expiry_position(SEGMENTS, KEEP_ALL, now_ms=10**15) == 100


@pytest.mark.parametrize(
    ("now_ms", "position"),
    [(6 * HOUR_MS, 100), (6 * HOUR_MS + 1, 200), (7 * HOUR_MS, 200), (7 * HOUR_MS + 1, 300)],
)
def test_a_segment_goes_when_its_newest_message_is_older_than_the_bound(
    now_ms: int, position: int
) -> None:
    policy = RetentionPolicy(age_ms_max=5 * HOUR_MS)
    assert expiry_position(SEGMENTS, policy, now_ms=now_ms) == position


def test_the_segment_being_written_stays_however_old() -> None:
    policy = RetentionPolicy(age_ms_max=1)
    assert expiry_position(SEGMENTS, policy, now_ms=10**15) == 300


def test_a_segment_of_unknown_age_does_not_go_by_age() -> None:
    segments = [SegmentStats(0, 100, None), *SEGMENTS]
    policy = RetentionPolicy(age_ms_max=1)
    assert expiry_position(segments, policy, now_ms=10**15) == 0


@pytest.mark.parametrize(("log_bytes_max", "position"), [(250, 100), (249, 200), (149, 300)])
def test_the_oldest_segments_go_until_the_log_is_small_enough(
    log_bytes_max: int, position: int
) -> None:
    policy = RetentionPolicy(age_ms_max=None, log_bytes_max=log_bytes_max)
    assert expiry_position(SEGMENTS, policy, now_ms=0) == position


@pytest.mark.parametrize(
    ("free_bytes", "position"), [(200, 100), (151, 100), (150, 200), (51, 200), (50, 300), (0, 300)]
)
def test_the_oldest_segments_go_until_the_disk_is_below_its_second_watermark(
    free_bytes: int, position: int
) -> None:
    marks = DiskWatermarks(75, 85, 90, enough_bytes=1000)
    space = DiskSpace(free_bytes, 1000)
    assert forced_expiry_position(SEGMENTS, marks, space) == position


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    log_bytes_max=st.integers(1, 10_000),
)
def test_the_position_is_the_start_of_a_segment_and_no_segment_before_it_was_needed(
    sizes: list[int], log_bytes_max: int
) -> None:
    segments, start = [], 0
    for size in sizes:
        segments.append(SegmentStats(start, start + size, None))
        start += size
    policy = RetentionPolicy(log_bytes_max=log_bytes_max)
    position = expiry_position(segments, policy, now_ms=0)
    starts = [segment.start for segment in segments]
    assert position in starts
    kept = start - position
    assert kept <= log_bytes_max or position == starts[-1]
    if position > 0:
        before = starts[starts.index(position) - 1]
        assert start - before > log_bytes_max
