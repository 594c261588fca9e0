"""Times on the command line."""

from __future__ import annotations

import time
from calendar import timegm
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.terminal.time_arguments import (
    future_ms,
    length_ms,
    length_text,
    place_in_time,
    timestamp_ms,
)

NOON_UTC = 1_795_348_800_000  # 2026-11-22T12:00:00Z


@pytest.fixture
def zone_of_paris(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1795348800123", NOON_UTC + 123),
        ("2026-11-22T12:00:00Z", NOON_UTC),
        ("2026-11-22T12:00Z", NOON_UTC),
        ("2026-11-22 12:00:00.125Z", NOON_UTC + 125),
        ("2026-11-22T14:30:00+02:30", NOON_UTC),
        ("2026-11-22T13:00:00", NOON_UTC),
        ("2026-11-22", NOON_UTC - 13 * 3_600_000),
    ],
)
def test_times_are_milliseconds_or_iso_and_local_without_a_zone(
    text: str, expected: int, zone_of_paris: None
) -> None:
    assert timestamp_ms(text) == place_in_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "-1", "1.5", "2026-13-01", "2026-11-22T25:00", "1969-12-31T23:59:59Z"),
        *("9" * 30, "9" * 5000, "x" * 100_000, "0001-01-01", "0001-01-01T00:00:00+23:59"),
        *("9223372036854775808", "\u0661", "2026-11-22T10:00:00\u00e9", "\udcff", "a\0b"),
    ],
)
def test_what_is_no_time_is_refused_with_what_is_one(text: str) -> None:
    for read in (timestamp_ms, place_in_time):
        with pytest.raises(ValueError, match="such as 2026-11-22 or"):
            read(text)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_every_moment_that_python_writes_is_read(moment: datetime) -> None:
    expected = timegm(moment.timetuple()) * 1000 + moment.microsecond // 1000
    assert timestamp_ms(moment.isoformat()) == expected


def test_the_places_have_names() -> None:
    assert place_in_time("earliest") == "earliest"
    assert place_in_time("latest") == "latest"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("250ms", 250), ("1h", 3_600_000), ("7d", 604_800_000), ("1w", 604_800_000)],
)
def test_a_length_of_time_is_ago_or_from_now_on(
    text: str, ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.cli.terminal.time_arguments.system_clock_ms", lambda: NOON_UTC)
    assert timestamp_ms(text) == place_in_time(f"-{text}") == NOON_UTC - ms
    assert future_ms(text) == timestamp_ms(f"+{text}") == NOON_UTC + ms
    assert future_ms("2026-11-22T12:00:00Z") == NOON_UTC


@pytest.mark.parametrize("text", ["1", "1y", "h", "1.5h", "1h30m", "--1h", "9" * 30 + "h"])
def test_what_is_no_length_of_time_is_no_such_time(text: str) -> None:
    try:
        assert timestamp_ms(text) == int(text)
    except ValueError:
        assert not text.isdigit()


@given(st.integers(0, 1 << 50))
def test_a_length_of_time_is_read_as_it_is_written(length: int) -> None:
    assert length_ms(length_text(length)) == length


def test_a_length_of_time_is_written_in_its_largest_unit_and_has_no_sign() -> None:
    assert [length_text(ms) for ms in (86_400_000, 5_400_000, 90_000, 1_500)] == [
        *("1d", "90m", "90s", "1500ms")
    ]
    for wrong in ("+1h", "-1h", "1", "", "24 h"):
        with pytest.raises(ValueError, match="not a length of time"):
            length_ms(wrong)
