"""The actions of a run can be written down, read again and played, to the same end."""

from __future__ import annotations

import pytest

from simulator.faults.schedule import Action, ScheduleError, parse_action
from simulator.worlds.registry import Run


@pytest.mark.parametrize("seed", [2, 3, 5, 12])
def test_the_schedule_of_a_run_gives_the_same_run_again(seed: int) -> None:
    first: list[str] = []
    outcome = Run(seed, seconds=5.0).play(first.append)
    written = [str(action) for action in outcome.schedule]
    assert written, "a run without faults shows nothing"
    again: list[str] = []
    schedule = [parse_action(line) for line in written]
    played = Run(seed, seconds=5.0, schedule=schedule).play(again.append)
    assert again == first
    assert played.schedule == outcome.schedule


def test_a_run_without_one_action_is_the_same_up_to_it() -> None:
    first: list[str] = []
    outcome = Run(5, seconds=5.0).play(first.append)
    left_out = outcome.schedule[len(outcome.schedule) // 2]
    rest = [action for action in outcome.schedule if action is not left_out]
    other: list[str] = []
    Run(5, seconds=5.0, schedule=rest).play(other.append)
    before = [line for line in first if float(line.split()[0]) < left_out.at]
    assert other[: len(before)] == before
    assert other != first


def test_an_empty_schedule_is_a_run_without_faults() -> None:
    outcome = Run(5, seconds=3.0, schedule=[]).play()
    assert outcome.violation is None
    assert outcome.schedule == ()
    assert outcome.last_term == 1


def test_an_action_is_read_as_it_was_written() -> None:
    for action in (
        Action(1.25, "crash", ("n0",)),
        Action(0.1 + 0.2, "cut", ("n0", "n1", "silent")),
        Action(2.0, "fail-call", ("n2", 17)),
        Action(2.0, "loss", (0.3,)),
        Action(3.0, "heal"),
    ):
        assert parse_action(str(action)) == action


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "is not 'at SECONDS ACTION"),
        ("at 1.0", "is not 'at SECONDS ACTION"),
        ("at 1.0 dance n0", "is not 'at SECONDS ACTION"),
        ("on 1.0 crash n0", "is not 'at SECONDS ACTION"),
        ("at soon crash n0", "could not convert"),
        ("at 1.0 crash", "crash takes 1 arguments"),
        ("at 1.0 fail-call n0 many", "invalid literal"),
    ],
)
def test_a_line_that_is_no_action_is_refused(line: str, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        parse_action(line)
