"""Functions that are known to be quadratic or linear. The counter must say which."""

from __future__ import annotations

import re
from collections.abc import Callable

_JSON = re.compile(rb'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)', re.DOTALL)
_NUMBER = re.compile(r"[0-9]+\.?[0-9]*")
_POSSESSIVE = re.compile(r"[0-9]++(?:\.[0-9]*+)?")


def _take_off(data: bytes) -> None:
    while data:
        data = data[1:]


def _add_to_bytes(data: bytes) -> bytes:
    joined = b""
    for start in range(len(data)):
        joined += data[start : start + 1]
    return joined


def _look_through_list(data: bytes) -> list[int]:
    seen: list[int] = []
    for place, byte in enumerate(data):
        if byte + place not in seen:
            seen.append(byte + place)
    return seen


def _pop_first(data: bytes) -> None:
    left = list(data)
    while left:
        left.pop(0)


def _find_from_start(data: bytes) -> int:
    return sum(data.find(b"\xff") for _ in data)


def _compare_rests(data: bytes) -> int:
    return sum(memoryview(data)[n:] == data[n:] for n in range(len(data)))


def _format_again(data: bytes) -> str:
    text = ""
    for byte in data:
        text = f"{text}{byte}"
    return text


def _restarting_regex(data: bytes) -> bytes:
    """A quarter of the units is enough: each is tried a dozen times from each start."""
    return _JSON.sub(b"", b'"' + rb"\"" * (len(data) // 4))


def _backtracking_regex(data: bytes) -> object:
    return _NUMBER.fullmatch("1" * len(data) + "x")


QUADRATIC: dict[str, Callable[[bytes], object]] = {
    "takes off the first byte": _take_off,
    "adds to bytes": _add_to_bytes,
    "looks through a list": _look_through_list,
    "pops the first": _pop_first,
    "searches from the start": _find_from_start,
    "copies what is left": _compare_rests,
    "formats what it has": _format_again,
    "regular expression that starts again": _restarting_regex,
    "regular expression that backtracks": _backtracking_regex,
}


def _walk(data: bytes) -> int:
    total = place = 0
    while place < len(data):
        found = data.find(data[place : place + 1], place)
        total += found
        place = found + 1
    return total


def _gather(data: bytes) -> bytes:
    parts = [data[n : n + 1] for n in range(len(data))]
    grown = bytearray()
    for part in parts:
        grown += part
    return b"".join(parts) + grown


def _views(data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[1:]
    return len(set(data)) + len(data.split(b"a"))


def _possessive_regex(data: bytes) -> object:
    return _POSSESSIVE.fullmatch("1" * len(data) + "x")


LINEAR: dict[str, Callable[[bytes], object]] = {
    "walks on": _walk,
    "gathers": _gather,
    "views": _views,
    "possessive regular expression": _possessive_regex,
}
