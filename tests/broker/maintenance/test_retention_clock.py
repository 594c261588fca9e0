"""The clock of retention: it follows the wall clock, but not where that jumps ahead."""

from __future__ import annotations

from broker.maintenance.retention_clock import RetentionClock

DAY_MS = 86_400_000


class Clocks:
    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.seconds = 5.0
        self.clock = RetentionClock(lambda: self.wall_ms, lambda: self.seconds)

    def after(self, seconds: float, *, jump_ms: int = 0) -> int:
        """How far the clock is behind the wall clock then."""
        self.seconds += seconds
        self.wall_ms += round(seconds * 1000) + jump_ms
        return self.wall_ms - self.clock.now_ms()


def test_it_is_the_wall_clock_while_that_goes_as_time_passes() -> None:
    clocks = Clocks()
    assert [clocks.after(10) for _ in range(5)] == [0] * 5
    assert clocks.after(3600) == 0


def test_what_is_ahead_for_ten_seconds_ages_messages_by_ten_seconds_more() -> None:
    clocks = Clocks()
    clocks.after(10)
    assert clocks.after(0, jump_ms=2 * DAY_MS) == 2 * DAY_MS
    assert clocks.after(10) == 2 * DAY_MS - 10_000
    assert clocks.after(0, jump_ms=-2 * DAY_MS) == 0


def test_what_is_set_ahead_for_good_is_followed_in_as_much_time() -> None:
    clocks = Clocks()
    assert clocks.after(0, jump_ms=60_000) == 60_000
    for _ in range(59_999):
        clocks.after(0.001)
    assert clocks.after(0.002) == 0


def test_a_clock_that_is_set_back_is_followed_at_once() -> None:
    clocks = Clocks()
    assert clocks.after(1, jump_ms=-DAY_MS) == 0


def test_a_clock_that_was_set_back_for_a_moment_is_followed_again_soon() -> None:
    clocks = Clocks()
    clocks.after(10)
    clocks.after(0, jump_ms=-DAY_MS)
    for _ in range(10):
        clocks.after(1)
    assert clocks.after(0, jump_ms=DAY_MS) == 10_000
    assert clocks.after(10) == 0


def test_a_clock_that_is_ahead_a_second_time_is_followed_as_slowly_as_the_first_time() -> None:
    clocks = Clocks()
    clocks.after(0, jump_ms=2 * DAY_MS)
    clocks.after(3600)
    assert clocks.after(0, jump_ms=-2 * DAY_MS) == 0
    clocks.after(10)
    assert clocks.after(0, jump_ms=2 * DAY_MS) == 2 * DAY_MS
