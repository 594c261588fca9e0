"""Planted bugs N of scheduled messages."""

from __future__ import annotations

from typing import Any

from broker.group_commit.batcher import Batcher
from broker.maintenance.retention import Retention
from broker.scheduled.delay_level_dispatcher import DelayLevelDispatcher
from broker.scheduled.in_flight_timers import InFlightTimers
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.scheduled.timer_dispatcher import TimerDispatcher
from broker.state.broker_state import TimerProgress
from broker.state.commands import Schedule, Timer
from broker.state.recalled_messages import RecalledMessages, TimedKey
from dledger.node.state_machine import Leadership
from simulator.bugs.broker.entries_apart import in_two_entries
from simulator.bugs.broker.lost_state import not_applied, not_in_checkpoints
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import WAITING
from store.log.retention_policy import SegmentStats

LEADERS = ("crash", "partition", "pause")
AGAIN = "times and was stored"
OTHER_STATE = "gives up a state"
bug = BugsOf(WAITING, seconds=8.0)


@bug("N21x", "ms early", 5)
def due_messages_early(patch: Patch) -> None:
    """Messages of a delay level are delivered half a second early."""

    @patch.around(DelayLevelDispatcher, "_find")
    def early(find: Original[None], level: DelayLevelDispatcher) -> None:
        batcher = level._batcher
        level._batcher = _Ahead(batcher)  # type: ignore[assignment]  # it passes calls on
        try:
            find(level)
        finally:
            level._batcher = batcher


class _Ahead:
    """A batcher whose clock is ahead."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batcher, name)

    def now_ms(self) -> int:
        return self._batcher.now_ms() + 500


@bug("N22x", "ms early", 5)
def timed_messages_early(patch: Patch) -> None:
    """Timed messages are delivered half a second before their time."""
    limit = TimerDispatcher._limit_ms
    patch.set(TimerDispatcher, "_limit_ms", lambda timers: limit(timers) + 500)


@bug("N23x", AGAIN, 40, *LEADERS)
def copy_and_mark_apart(patch: Patch) -> None:
    """Due messages are stored in one entry, and the next entry says that they are delivered."""
    in_two_entries(patch, (Schedule, Timer))


@bug("N24x", AGAIN, 5)
def mark_not_moved(patch: Patch) -> None:
    """The progress of delay levels in the log is not kept."""
    not_applied(patch, Schedule)


@bug("N25x", AGAIN, 5)
def level_begun_at_what_is_applied(patch: Patch) -> None:
    """A step of a delay level begins where the log says, without steps in progress."""
    patch.set(DelayLevelDispatcher, "_advance_to", lambda _level, _offset: None)


@bug("N26x", "not within", 10, "full disk", "slow disk")
def step_not_repeated(patch: Patch) -> None:
    """If a step could not be stored, the next step goes on behind it."""
    patch.set(DelayLevelDispatcher, "_restart_from_applied", lambda _level: None)
    patch.set(TimerDispatcher, "_restart_from_applied", _begin_once)


_restart_timers = TimerDispatcher._restart_from_applied


def _begin_once(timers: TimerDispatcher) -> None:
    if not hasattr(timers, "_progress"):
        _restart_timers(timers)


@bug("N27x", "not within", 30)
def messages_in_flight_passed(patch: Patch) -> None:
    """A due message is delivered while an earlier one is still in progress."""
    patch.set(InFlightTimers, "first_ms", lambda _in_flight: None)


@bug("N28x", f"{AGAIN} | {OTHER_STATE}", 5, "stop", "crash")
def mark_of_the_wheel_not_in_the_checkpoint(patch: Patch) -> None:
    """The progress of timed messages is not in the state that a restart begins with."""
    not_in_checkpoints(patch, "timer", TimerProgress)


@bug("N29x", "not within", 10)
def message_for_a_time_that_is_past(patch: Patch) -> None:
    """A message whose time has passed is put on the timer wheel, behind the progress."""
    patch.set(
        ScheduledMessageService, "now_ms", lambda delivery: delivery._within.batcher.now_ms() - 3000
    )


@bug("N30x", "not within", 10, *LEADERS)
def level_not_dispatched_by_a_new_leader(patch: Patch) -> None:
    """A new leader delivers new messages only, not those that waited before."""

    @patch.around(ScheduledMessageService, "leadership_changed")
    def deaf(
        changed: Original[None], delivery: ScheduledMessageService, leadership: Leadership
    ) -> None:
        term = delivery._term
        changed(delivery, leadership)
        if delivery._timers is not None and delivery._term != term:
            for each in (*delivery._levels, delivery._timers):
                each._cancel()


@bug("N31x", AGAIN, 40, *LEADERS)
def deposed_leader_delivers_on(patch: Patch) -> None:
    """A deposed leader goes on with its old schedule when it leads again."""

    @patch.around(ScheduledMessageService, "leadership_changed")
    def careless(
        began: Original[None], delivery: ScheduledMessageService, leadership: Leadership
    ) -> None:
        if leadership.serving and not delivery._levels:
            began(delivery, leadership)


@bug("N32x", "is removed up to", 5, "expiry")
def waiting_messages_expire(patch: Patch) -> None:
    """Retention removes segments in which scheduled messages or open transactions wait."""

    @patch.instead(Retention, "_waiting_position")
    def heartless(_retention: Retention, stats: list[SegmentStats]) -> int:
        return stats[-1].end if stats else 0


@bug("N56x", "of them recalled", 5)
def recalled_message_delivered(patch: Patch) -> None:
    """A message that its producer has taken back is delivered when its time comes."""
    patch.set(TimerDispatcher, "_is_recalled", lambda _timers, _key: False)


@bug("N54x", "and not the log", 20)
def message_on_its_way_recalled(patch: Patch) -> None:
    """A message is taken back though its delivery is in progress."""

    @patch.instead(ScheduledMessageService, "is_over")
    def is_over(delivery: ScheduledMessageService, key: TimedKey) -> bool:
        applied = delivery._within.machine.state.timer
        return key <= (applied.deliver_ms, applied.offset)


@bug("N55x", f"of them recalled | {OTHER_STATE}", 10, "stop", "crash")
def recalls_not_in_the_checkpoint(patch: Patch) -> None:
    """The recalled messages are not in the state that a restart begins with."""
    not_in_checkpoints(patch, "recalled", RecalledMessages)
