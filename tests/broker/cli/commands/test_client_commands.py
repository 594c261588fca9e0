"""Commands of clients without a cluster: their arguments, and how they fail."""

from __future__ import annotations

import pytest

from broker.cli.main import main
from broker.cli.terminal.progress import Progress


def run(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("consume", "t"), "--group"),
        (("consume", "t", "--group", "g", "--from", "yesterday"), "'yesterday' is not a time"),
        (("consume", "t", "--group", "g", "--from", "9" * 23), "is not a time in milliseconds"),
        (("consume", "t", "--group", "g", "--timeout", "nan"), "'nan' is not a number of seconds"),
        (("consume", "t", "--group", "g", "--timeout", "-1"), "'-1' is not a number of seconds"),
        (("consume", "bad topic!", "--group", "g"), "'bad topic!' may only have"),
        (("consume", "t", "--group", "bad group!"), "'bad group!' may only have"),
        (("consume", "t", "--group", ""), "the group has no name"),
        (("consume", "t", "--group", "g" * 300), "has 300 characters, at most 255"),
        (("consume", "t", "--group", "g", "--namesrv", ""), "'' is not an address host:port"),
        (("group", "reset-offset", "g", "--topic", "t", "--to", "9" * 23), "is not a time"),
        (("produce", "bad topic!"), "'bad topic!' may only have"),
        (("produce", "t", "--tag", "x\x01y"), "cannot be stored"),
        (("produce", "t", "--timeout", "inf"), "'inf' is not a number of seconds"),
        (("produce", "t", "--namesrv", "foo:bar"), "'foo:bar' is not an address host:port"),
        (("status", "--namesrv", "127.0.0.1"), "'127.0.0.1' is not an address host:port"),
        (("topic", "create", "t", "-b", "nonsense"), "'nonsense' is not an address host:port"),
        (("topic", "create", "t", "--queues", "100000"), "it may be 1 to 16384"),
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
