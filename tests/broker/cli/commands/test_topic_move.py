"""``dledger topic move``: how long it waits before each step, and what it does not delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.cli.commands import topic_move as module
from broker.cli.main import main
from broker.cluster_admin.admin_client import AdminClient
from broker.remoting.protocol.codes import RequestCode
from tests.broker.cluster_admin.test_topic_move import SOURCE, TwoGroups

CLOSED = {**SOURCE, "perm": 4}


class Clock:
    """In place of the module ``time``; notes what it sleeps among the changes of the groups."""

    def __init__(self, groups: TwoGroups) -> None:
        self.now = 100.0
        self._groups = groups

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._groups.changes.append(f"{seconds:g} s")


Move = Callable[..., list[str]]


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Move:
    def move(groups: TwoGroups, *options: str, code: int = 0) -> list[str]:
        """What a run changes, and how long it waits in between."""

        def run(_namesrv: str, work: Callable[[AdminClient], Coroutine[Any, Any, Any]]) -> Any:
            return asyncio.run(work(groups))

        groups.changes.clear()
        monkeypatch.setattr(module, "time", Clock(groups))
        monkeypatch.setattr(module, "run_on_leaders", run)
        assert main(("topic", "move", "orders", "--from", "a", "--to", "b", *options)) == code
        return [change.split(" +")[0].strip() for change in groups.changes]

    return move


def test_clients_learn_of_the_target_and_later_that_the_source_is_closed(move: Move) -> None:
    closing = ["35 s", "a perm 4", "35 s", "a deleted"]
    assert move(TwoGroups(a=SOURCE)) == ["b perm 6", *closing]
    assert move(TwoGroups(a=SOURCE, b=SOURCE)) == closing
    assert move(TwoGroups(a=SOURCE), "--settle", "2") == [
        *("b perm 6", "2 s", "a perm 4", "2 s", "a deleted")
    ]


def test_in_order_they_learn_once_that_nobody_takes_messages(move: Move) -> None:
    assert move(TwoGroups(a=SOURCE), "--in-order") == [
        *("b perm 4", "a perm 4", "35 s", "b perm 6", "a deleted")
    ]


def test_a_run_that_finds_the_source_closed_does_not_know_since_when(move: Move) -> None:
    assert move(TwoGroups(a=CLOSED, b=SOURCE)) == ["35 s", "a deleted"]


def test_the_time_in_which_consumers_read_is_not_waited_again(move: Move) -> None:
    groups = ReadBySteps(a=CLOSED, b=SOURCE, lag=30)
    assert move(groups, "--wait") == [*["1 s"] * 29, "6 s", "a deleted"]
    assert move(TwoGroups(a=CLOSED, b=SOURCE, lag=30), code=1) == []


class ReadBySteps(TwoGroups):
    """A group reads one message after each look; the first is before the source is closed."""

    async def ask(self, *given: Any, **named: Any) -> Any:
        answer = await super().ask(*given, **named)
        if given[1] == RequestCode.GET_CONSUMER_GROUPS:
            assert self.lag is not None
            self.lag = max(0, self.lag - 1)
        return answer


def test_what_waits_for_its_time_is_not_lost_without_a_word(
    move: Move, capsys: pytest.CaptureFixture[str]
) -> None:
    for groups, told in (
        (TwoGroups(a=CLOSED, b=SOURCE, waiting=3), "3 scheduled messages or open transactions of"),
        (TwoGroups(a=CLOSED, b=SOURCE, unread=4), "4 scheduled messages or open transactions wait"),
    ):
        assert move(groups, code=1) == []
        assert told in capsys.readouterr().err
        assert move(groups, "--yes") == ["35 s", "a deleted"]


class DueAtLast(TwoGroups):
    """A message becomes due between the last look at what consumers read and that at what waits."""

    looks = 0

    async def ask(self, *given: Any, **named: Any) -> Any:
        if given[1] == RequestCode.GET_WAITING_OF_TOPIC:
            self.looks += 1
            if self.looks == 3:
                self.lag = 1
        return await super().ask(*given, **named)


def test_what_becomes_due_between_two_questions_is_not_deleted(
    move: Move, capsys: pytest.CaptureFixture[str]
) -> None:
    assert move(DueAtLast(a=CLOSED, b=SOURCE), code=1) == ["35 s"]
    assert "not all of orders is consumed on a: g 1" in capsys.readouterr().err


def test_what_comes_while_the_command_waits_for_an_answer_is_seen(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = TwoGroups(a=CLOSED, b=SOURCE)

    def answer_slowly(question: str, *, yes: bool) -> None:
        assert question == "Delete orders and its 14 messages on a"
        assert not yes
        groups.lag = 1

    monkeypatch.setattr(module, "ask_first", answer_slowly)
    assert move(groups, code=1) == ["35 s"]
