"""Commands of clients without a cluster: their arguments, and how they fail."""

from __future__ import annotations

import pytest

from broker.cli.main import main
from broker.cli.terminal.progress import Progress

ERASED_LINE = "\x1b[1A\x1b[2K"


def run(*arguments: str) -> int:
    return main(arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("consume", "t", "--broadcast"), "--broadcast needs --group"),
        (("consume", "t", "--group", "g", "--last", "3"), "omit --group"),
        (("consume", "t", "--group", "g", "--follow"), "omit --group"),
        (("consume", "t", "--last", "3", "--offset", "2"), "cannot be used together"),
        (("consume", "t", "--last", "3", "--follow"), "has no end"),
        (("consume", "t", "--tags", "a", "--sql", "a = 1"), "cannot be used together"),
        (("consume", "t", "--format", "%y"), "'%y' is not a field"),
        (("produce", "t", "--property", "x"), "'x' is not NAME=VALUE"),
        (("produce", "t", "--property", "KEYS=x"), "has its own option"),
        (("produce", "t", "--key", "a", "--key-from", "b"), "cannot be used together"),
        (("produce", "t", "--deliver-at", "1h", "--delay-level", "1"), "cannot be used together"),
        (("produce", "t", "--file", "nowhere"), "nowhere does not exist"),
        (("topic", "create", "t", "-b", "a:1", "-c", "b"), "cannot be used together"),
        (("topic", "alter", "t"), "nothing is changed"),
        (("group", "alter", "t"), "nothing is changed"),
        (("consume", "t", "--group", "g", "--from", "yesterday"), "'yesterday' is not a time"),
        (("consume", "t", "--group", "g", "--from", "9" * 23), "is not a time in milliseconds"),
        (("consume", "t", "--group", "g", "--timeout", "nan"), "'nan' is not a number of seconds"),
        (("consume", "t", "--group", "g", "--timeout", "-1"), "'-1' is not a number of seconds"),
        (("quota", "set", "topic", "t", "--produce-messages", "1_0"), "'1_0' is not a valid"),
        (("quota", "set", "topic", "t", "--consume-messages", "-1"), "-1 is not in the range"),
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
        (("topic", "create", "t", "--queues", "100000"), "100000 is not in the range 1<=x<=16384"),
        (("consume", "t", "--group", "g", "--count", "0"), "0 is not in the range 1<=x"),
        (("consume", "t", "--group", "g", "--tags", "||"), "names no tag"),
        (("produce",), "TOPIC"),
        (("produce", "t", "--delay-level", "19"), "1<=x<=18"),
        (("produce", "t", "--batch", "x"), "'x' is not a valid integer"),
        (("bench", "everything"), "is not one of"),
        (("bench", "--seconds", "0"), "'0' is not a number of seconds"),
        (("bench", "failover", "--namesrv", "127.0.0.1:1"), "leave --namesrv out"),
        (("mirror", "t"), "the source is missing"),
        (("mirror", "a:1"), "no topic is named"),
        (("mirror", "a:1", "t", "--source", "b:1"), "both name the source"),
        (("mirror", "t", "a:1"), "'a:1' is not a topic"),
        (("mirror", "a:b", "t"), "'a:b' is not an address host:port"),
    ],
)
def test_bad_usage_is_told_and_ends_with_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err


@pytest.mark.parametrize(
    "arguments",
    [("a:1;b:2", "t", "u"), ("t", "u", "--source", "a:1;b:2")],
    ids=["argument", "option"],
)
def test_the_source_of_a_mirror_is_its_first_argument_or_an_option(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    async def copy(topics: object, source: object, *_others: object) -> int:
        taken.extend((topics, source))
        return 0

    monkeypatch.setattr("broker.cli.commands.mirror._mirror", copy)
    assert run("mirror", *arguments) == 0
    assert taken == [("t", "u"), "a:1;b:2"]


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
    assert "5 of 10 messages" in capsys.readouterr().err
    progress.end()
    assert capsys.readouterr().err.endswith(ERASED_LINE)
