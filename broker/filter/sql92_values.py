"""Values of filter expressions, and RocketMQ's comparison of them (``ComparisonExpression``).

Properties are text. Constants are text, integers, floating-point numbers and booleans. Text is
converted to the type of the other side of a comparison. None is an unknown value: a property that
the message does not have.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from store.quoting import quoted

Value: TypeAlias = str | int | float | bool | None

# ``++``: no backtracking, because a property may be long.
_INTEGER = re.compile(r"[+-]?[0-9]++")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)"
)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class NotComparableError(Exception):
    """A property that is compared with a number is not a number. The message does not match."""


def compare(left: str | float, right: str | float) -> int:
    """Below, at or above 0, as Java's ``compareTo``. Raises :class:`NotComparableError`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _compare_booleans(left, right)
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        return _compare_numbers(_number(left, right), right)
    if isinstance(right, str):
        return _compare_numbers(left, _number(right, left))
    return _compare_numbers(left, right)


def compare_ordered(left: str | float, right: str | float) -> int:
    """As :func:`compare`, for <, <=, > and >=: two texts are compared as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return _compare_numbers(_double(left), _double(right))
    return compare(left, right)


def _compare_booleans(left: str | float, right: str | float) -> int:
    if isinstance(left, str):
        left = left.lower() == "true"
    if isinstance(right, str):
        right = right.lower() == "true"
    if isinstance(left, bool) and isinstance(right, bool):
        return left - right
    return -1


def _compare_numbers(left: float, right: float) -> int:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


def _number(text: str, like: float) -> float:
    if isinstance(like, float):
        return _double(text)
    if _INTEGER.fullmatch(text):
        number = int(text) if len(text) <= 20 else _INT64_MAX + 1
        if _INT64_MIN <= number <= _INT64_MAX:
            return number
    raise NotComparableError(f"{quoted(text)} is not an integer")


def _double(text: str) -> float:
    stripped = text.strip()
    if not _DOUBLE.fullmatch(stripped):
        raise NotComparableError(f"{quoted(text)} is not a number")
    if stripped.endswith(("NaN", "Infinity")):
        return float(stripped)
    return float(stripped.rstrip("fFdD"))
