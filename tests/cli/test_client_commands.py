"""`produce`, `consume` and `bench` without a cluster: their arguments, and how they fail."""

from __future__ import annotations

import pytest

from broker.cli.main import main
from broker.cli.progress import Progress


def run(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("consume", "t"), "--group"),
        (("consume", "t", "--group", "g", "--from", "yesterday"), "'yesterday' is not earliest"),
        (("consume", "t", "--group", "g", "--count", "0"), "'0' is not a number from 1 up"),
        (("consume", "t", "--group", "g", "--tags", "||"), "names no tag"),
        (("produce",), "TOPIC"),
        (("produce", "t", "--delay-level", "19"), "invalid choice"),
        (("produce", "t", "--batch", "x"), "'x' is not a number from 1 up"),
        (("bench", "everything"), "invalid choice"),
        (("bench", "--seconds", "0"), "'0' is not a number of seconds"),
        (("bench", "failover", "--namesrv", "127.0.0.1:1"), "leave --namesrv out"),
    ],
)
def test_bad_usage_is_told_and_ends_with_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err


def test_progress_is_not_shown_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter(range(100))
    progress = Progress("messages", lambda: float(next(seconds)), 10)
    progress.add(5)
    progress.end()
    assert progress.count == 5
    assert progress.rate > 0
    assert capsys.readouterr().err == ""


def test_progress_is_one_line_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    seconds = iter((0.0, 1.0, 1.0, 1.0, 2.0))
    progress = Progress("messages", lambda: next(seconds), 10)
    progress.add(5)
    progress.end()
    shown = capsys.readouterr().err
    assert "5 of 10 messages" in shown
    assert "\n" not in shown
    assert shown.endswith("\r")
