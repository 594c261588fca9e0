"""The leader's clock goes on, never back, whatever wall clocks and earlier leaders say."""

from __future__ import annotations

import asyncio
from typing import cast

from broker.group_commit.store_clock import StoreClock


class Clocks:
    """What a store clock looks at, set by hand: seconds that run, and milliseconds otherwise."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.wall_ms = 10_000
        self.stored_ms = 0
        loop = cast("asyncio.AbstractEventLoop", self)
        self.clock = StoreClock(loop, lambda: self.wall_ms, lambda: self.stored_ms)

    def time(self) -> float:
        return self.seconds

    def after(self, seconds: float) -> int:
        """What it tells so much later."""
        self.seconds += seconds
        self.wall_ms += int(seconds * 1000)
        return self.clock.now_ms()


def test_it_is_the_wall_clock_where_that_is_ahead() -> None:
    clocks = Clocks()
    assert [clocks.after(0), clocks.after(2)] == [10_000, 12_000]


def test_a_clock_that_was_set_back_is_half_as_fast_until_it_is_caught_up_with() -> None:
    clocks = Clocks()
    clocks.after(0)
    clocks.wall_ms -= 3_000
    told = [clocks.after(seconds) for seconds in (0, 1, 1, 1, 1, 1, 1, 1)]
    assert told == [10_000, 10_500, 11_000, 11_500, 12_000, 12_000, 13_000, 14_000]
    assert clocks.wall_ms == 14_000


def test_it_goes_on_from_where_an_earlier_leader_was_ahead() -> None:
    clocks = Clocks()
    clocks.stored_ms = 50_000
    assert [clocks.after(0), clocks.after(2)] == [50_000, 51_000]


def test_it_goes_on_from_what_an_earlier_leader_wrote_beside_the_records() -> None:
    clocks = Clocks()
    clocks.clock.reached(50_000)
    clocks.clock.reached(40_000)
    assert [clocks.after(0), clocks.after(2)] == [50_000, 51_000]


def test_what_leaders_were_ahead_between_two_terms_of_this_one_does_not_stop_it() -> None:
    clocks = Clocks()
    clocks.stored_ms = 50_000
    assert [clocks.after(0), clocks.after(2)] == [50_000, 51_000]
    clocks.stored_ms = 70_000
    assert [clocks.after(10), clocks.after(2), clocks.after(2)] == [70_000, 71_000, 72_000]
