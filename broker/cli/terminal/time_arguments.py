"""Arguments that name a moment: milliseconds since 1970, or ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from broker.remoting.protocol.ext_fields import INT64_MAX
from store.quoting import quoted

TIME = "TIME"
TIME_HELP = (
    "TIME is in milliseconds since 1970, or like 2026-11-22, 2026-11-22T10:00:00Z or "
    "2026-11-22T10:00:00+01:00; without a zone it is local time"
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TEXT_MAX = 40
"""Longer than any time that ISO 8601 writes, and than any number of milliseconds."""


def timestamp_ms(text: str) -> int:
    """The type of an option that is a time; gives milliseconds since 1970."""
    moment = _milliseconds(text) if text.isascii() and len(text) <= _TEXT_MAX else None
    if moment is None or not 0 <= moment <= INT64_MAX:
        raise ValueError(
            f"{quoted(text)} is not a time in milliseconds since 1970, nor of ISO 8601, such as "
            "2026-11-22 or 2026-11-22T10:00:00Z"
        )
    return moment


def _milliseconds(text: str) -> int | None:
    if text.isdigit():
        return int(text)
    try:
        # A time without a zone is local time. At the ends of Python's range a zone leads out of it.
        return (datetime.fromisoformat(text).astimezone(UTC) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError, OSError):
        return None


def place_in_time(text: str) -> Literal["earliest", "latest"] | int:
    """The type of an option for the beginning in a queue."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        return timestamp_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}; or earliest or latest") from None
