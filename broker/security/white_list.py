"""Patterns of addresses in white lists.

Source: RocketMQ 4.9, ``RemoteAddressStrategyFactory``. A pattern is ``*``, an address, an IPv4
address whose last parts are ``*`` or a range ``1-10``, or an address whose last part is a set
``{1,2}``. A list separates patterns by commas.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dledger.wire.endpoint import is_address
from store.quoting import quoted

PATTERNS_MAX = 64
"""Setting: patterns in one list."""

TEXT_SIZE_MAX = 4096
"""Setting: characters of a list."""

_PART = re.compile(r"\*|[0-9]{1,3}(-[0-9]{1,3})?")
_SET = re.compile(r"\{[0-9]{1,3}(,[0-9]{1,3}){0,31}\}")


class WhiteListError(ValueError):
    """A text is not a list of address patterns."""


def split_white_list(text: str) -> list[str]:
    """The patterns of a list, each checked. Raises :class:`WhiteListError`."""
    if len(text) > TEXT_SIZE_MAX:
        raise WhiteListError(f"{len(text)} characters, at most {TEXT_SIZE_MAX} are allowed")
    patterns = [each.strip() for each in _split(text) if each.strip()]
    if len(patterns) > PATTERNS_MAX:
        raise WhiteListError(
            f"{len(patterns)} address patterns, at most {PATTERNS_MAX} are allowed"
        )
    for pattern in patterns:
        if pattern != "*" and not is_address(pattern) and _ranges(pattern) is None:
            raise WhiteListError(f"{quoted(pattern)} is not a pattern of addresses")
    return patterns


def matches(pattern: str, host: str) -> bool:
    """Whether the address matches the pattern; false for an invalid pattern."""
    if pattern in {"*", host}:
        return True
    ranges = _ranges(pattern)
    if ranges is None:
        return False
    parts = host.split(".")
    return len(parts) == len(ranges) and all(
        part.isdigit() and any(first <= int(part) <= last for first, last in allowed)
        for part, allowed in zip(parts, ranges, strict=True)
    )


def _split(text: str) -> list[str]:
    """Splits at the commas outside sets."""
    parts, begin, in_set = [], 0, False
    for place, character in enumerate(text):
        if character == "," and not in_set:
            parts.append(text[begin:place])
            begin = place + 1
        elif character in "{}":
            in_set = character == "{"
    return [*parts, text[begin:]]


@lru_cache(maxsize=1024)
def _ranges(pattern: str) -> list[list[tuple[int, int]]] | None:
    """For each part of an IPv4 address the ranges of numbers (first, last) that match."""
    if len(pattern) > 255:
        return None
    parts = pattern.split(".")
    if len(parts) != 4:
        return None
    allowed: list[list[tuple[int, int]]] = []
    for place, part in enumerate(parts):
        if place == 3 and _SET.fullmatch(part):
            allowed.append([(int(each), int(each)) for each in part[1:-1].split(",")])
        elif not _PART.fullmatch(part):
            return None
        elif part == "*":
            allowed.append([(0, 255)])
        else:
            first, _, last = part.partition("-")
            allowed.append([(int(first), int(last or first))])
    return allowed
