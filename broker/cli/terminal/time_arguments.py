"""Arguments that name a time: milliseconds since 1970, ISO 8601, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from broker.remoting.protocol.ext_fields import INT64_MAX
from broker.system.wall_clock import system_clock_ms
from store.quoting import quoted

TIME = "TIME"
TIME_HELP = (
    "TIME is in milliseconds since 1970, or like 2026-11-22, 2026-11-22T10:00:00Z or "
    "2026-11-22T10:00:00+01:00, without a zone in local time; or as long ago as 90s, 30m, 1h or 7d"
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LENGTH = re.compile(rf"([+-]?)([0-9]+)({'|'.join(_UNITS_MS)})")
_TEXT_MAX = 40
"""Longer than any time of ISO 8601, and than any number of milliseconds."""


def timestamp_ms(text: str) -> int:
    """The type of an option with a time; gives milliseconds since 1970. A length of time means so
    long ago. Raises ``ValueError``."""
    return _moment(text, -1)


def future_ms(text: str) -> int:
    """As :func:`timestamp_ms`; a length of time counts from now."""
    return _moment(text, 1)


def length_ms(text: str) -> int:
    """The type of an option with a length of time, such as 90s, 30m, 1h or 7d, without a sign;
    gives milliseconds. Raises ``ValueError``."""
    length = _LENGTH.fullmatch(text) if text.isascii() and len(text) <= _TEXT_MAX else None
    if length is None or length[1]:
        raise ValueError(f"{quoted(text)} is not a length of time such as 90s, 30m, 1h or 7d")
    return int(length[2]) * _UNITS_MS[length[3]]


def length_text(length_ms: int) -> str:
    """A length of time as a whole number of the largest possible unit, up to days."""
    units = [unit for unit in ("d", "h", "m", "s") if length_ms % _UNITS_MS[unit] == 0]
    unit = units[0] if units else "ms"
    return f"{length_ms // _UNITS_MS[unit]}{unit}"


def _moment(text: str, direction: int) -> int:
    moment = None
    if text.isascii() and len(text) <= _TEXT_MAX:
        length = _LENGTH.fullmatch(text)
        if length is None:
            moment = _milliseconds(text)
        else:
            sign = {"+": 1, "-": -1}.get(length[1], direction)
            moment = system_clock_ms() + sign * int(length[2]) * _UNITS_MS[length[3]]
    if moment is None or not 0 <= moment <= INT64_MAX:
        raise ValueError(
            f"{quoted(text)} is not a time in milliseconds since 1970, nor of ISO 8601, such as "
            "2026-11-22 or 2026-11-22T10:00:00Z, nor a length such as 90s, 30m, 1h or 7d"
        )
    return moment


def _milliseconds(text: str) -> int | None:
    if text.isdigit():
        return int(text)
    try:
        # A time without a zone is local time. At the ends of Python's range a zone may exceed it.
        return (datetime.fromisoformat(text).astimezone(UTC) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError, OSError):
        return None


def place_in_time(text: str) -> Literal["earliest", "latest"] | int:
    """The type of an option for a place in queues: earliest, latest, or a time in ms."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        return timestamp_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}; or earliest or latest") from None
