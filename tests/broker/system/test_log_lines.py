"""Lines of a server's log: how they are written, how long they are, and how often they repeat."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from typing import Any

import pytest

from broker.system.log_lines import JsonFormatter, LogLimits, RepeatedLineFilter, TextFormatter
from store.quoting import FROM_OUTSIDE

LIMITS = LogLimits(line_max=200, repeat_seconds=10.0, lines_max=8, field_max=50)


class Lines(logging.Handler):
    """Keeps what passes, as it would be written. ``now`` is the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lines: list[str] = []
        self.setFormatter(TextFormatter(LIMITS))
        self.addFilter(RepeatedLineFilter(LIMITS, lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def messages(self) -> list[str]:
        """Without time, level and logger."""
        return [line.split(": ", 1)[1] for line in self.lines]


@pytest.fixture
def handler() -> Lines:
    return Lines()


@pytest.fixture
def log(handler: Lines) -> logging.Logger:
    logger = logging.Logger("dledger.test")
    logger.addHandler(handler)
    return logger


def in_json(handler: Lines) -> None:
    handler.setFormatter(JsonFormatter(LIMITS, "broker-a/n0"))


def test_of_lines_that_anybody_can_cause_one_of_a_kind_is_shown(
    log: logging.Logger, handler: Lines
) -> None:
    for number in range(1000):
        log.warning("%d: closed", number, extra=FROM_OUTSIDE)
        log.warning("refused %d", number, extra=FROM_OUTSIDE)
        handler.now += 0.005
    assert handler.messages == ["0: closed", "refused 0"]


def test_no_line_repeats_within_ten_seconds(log: logging.Logger, handler: Lines) -> None:
    shown: list[tuple[float, str]] = []
    for step in range(400):
        handler.now = step / 10
        before = len(handler.lines)
        log.error("no room for %s", "ab"[step % 2])
        shown += [(handler.now, message) for message in handler.messages[before:]]
    assert len(shown) == 8
    for text in ("no room for a", "no room for b"):
        times = [now for now, message in shown if message.startswith(text)]
        assert all(later - earlier >= 10 for earlier, later in pairwise(times))


def test_the_next_line_says_how_many_were_left_out(log: logging.Logger, handler: Lines) -> None:
    for _ in range(5):
        log.warning("%s: closed", "peer")
    handler.now = 10.0
    log.warning("%s: closed", "peer")
    handler.now = 20.0
    log.warning("%s: closed", "peer")
    assert handler.messages == [
        "peer: closed",
        "peer: closed suppressed=4",
        "peer: closed",
    ]


def test_lines_that_differ_are_all_shown_if_they_are_the_servers_own(
    log: logging.Logger, handler: Lines
) -> None:
    for number in range(3):
        log.error("entry %d is damaged", number)
        log.info("settings", extra={"number": number})
    assert len(handler.lines) == 6


def test_no_more_lines_are_remembered_than_the_limit_and_the_newest_ones(
    log: logging.Logger, handler: Lines
) -> None:
    (rare,) = handler.filters
    assert isinstance(rare, RepeatedLineFilter)
    for number in range(50):
        log.warning("kind %d", number)
        log.warning("again")
    assert len(rare._shown) == LIMITS.lines_max
    assert len(rare._suppressed) <= LIMITS.lines_max
    assert handler.messages.count("again") <= 1 + 50 // (LIMITS.lines_max - 1)


def test_a_line_has_time_level_logger_message_and_fields(
    log: logging.Logger, handler: Lines
) -> None:
    record = logging.makeLogRecord(
        {
            "name": "dledger.test",
            "levelname": "WARNING",
            "msg": "the disk %s",
            "args": ("fills up",),
            "created": 1_700_000_000.1234,
            "free": 1024,
            "why": 'a "b" c',
            "leader": None,
        }
    )
    assert handler.format(record) == (
        "2023-11-14T22:13:20.123Z WARNING dledger.test: the disk fills up "
        r'free=1024 why="a \"b\" c" leader=None'
    )
    in_json(handler)
    assert json.loads(handler.format(record)) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "WARNING",
        "logger": "dledger.test",
        "node": "broker-a/n0",
        "message": "the disk fills up",
        "free": 1024,
        "why": 'a "b" c',
        "leader": None,
    }


def test_what_the_text_names_is_a_field_of_json_alone(log: logging.Logger, handler: Lines) -> None:
    log.info("%(node)s has %(free)d bytes", {"node": "n0", "free": 7})
    in_json(handler)
    log.info("%(node)s has %(free)d bytes", {"node": "n0", "free": 8})
    text, line = handler.lines
    assert text.endswith("dledger.test: n0 has 7 bytes")
    document = json.loads(line)
    assert (document["message"], document["free"]) == ("n0 has 8 bytes", 8)
    assert document["node"] == "broker-a/n0"


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_event_is_one_line_whatever_it_holds(
    log: logging.Logger, handler: Lines, form: str
) -> None:
    if form == "json":
        in_json(handler)
    try:
        raise ValueError("first\nsecond\udc80")
    except ValueError:
        log.exception("failed:\r\n%s", "x\ny", extra={"field": "a\nb", **FROM_OUTSIDE})
    (line,) = handler.lines
    assert len(line.splitlines()) == 1
    line.encode("utf-8", "backslashreplace")
    if form == "json":
        document: dict[str, Any] = json.loads(line)
        assert document["message"] == "failed:\r\nx\ny"
        assert document["field"] == "a\nb"
        assert document["exception"].startswith("Traceback")
        assert "from_outside" not in document
    else:
        assert r"failed:\r\nx\ny" in line
        assert r"exception=Traceback" in line


def test_a_long_line_is_cut(log: logging.Logger, handler: Lines) -> None:
    log.warning("closed: %s", "x" * 1_000_000, extra={"field": "y" * 1_000_000})
    (line,) = handler.lines
    assert len(line) < LIMITS.line_max + LIMITS.field_max + 100
    assert "WARNING dledger.test: closed: xxx" in line


def test_a_long_traceback_keeps_what_was_raised(log: logging.Logger, handler: Lines) -> None:
    try:
        raise ValueError("x" * 1_000_000 + " the end")
    except ValueError as error:
        log.exception("failed", exc_info=error)
    (text,) = handler.lines
    assert len(text) < 700
    assert text.endswith("the end")
    assert "Traceback" in text
