"""JSON as RocketMQ's Java side writes it (fastjson): keys may be bare integers, or objects.

``{"brokerAddrs":{0:"10.0.0.1:10911"}}`` and ``{"offsetTable":{{"queueId":0,"topic":"t"}:5}}`` are
not JSON, but clients before 4.9.4 expect the first, and every Java client writes the second. This
module reads and writes both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from broker.limits import BODY_LIMITS

# Every byte belongs to one token, and a token does not backtrack (``*+``), so the work is
# linear for any input. An unterminated string is a token too.
_TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]:,]|[^"{}\[\]:,]++',
    re.DOTALL,
)
_INTEGER = re.compile(rb"-?[0-9]++")
_WHITESPACE = b" \t\r\n"
_OBJECT, _COMMA = b"{,"
_MARKS = (b"{", b"}", b"[", b"]", b":", b",")


def encode_json(value: object, *, bare_keys: bool = False) -> bytes:
    """JSON of dicts (keys are strings or integers), lists and scalars."""
    if bare_keys:
        return b"".join(_bare_parts(value))
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def decode_json(data: bytes) -> Any:
    """The value of JSON text whose keys may be bare integers or objects.

    A bare integer becomes a string, and an object as a key the string of its text. Raises
    ``ValueError`` if it is not JSON even with such keys, or if it has such keys and exceeds
    :data:`~broker.limits.BODY_LIMITS`.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if len(data) > BODY_LIMITS.lenient_json_size:
            raise ValueError(
                f"{error} (keys without quotes are read in up to "
                f"{BODY_LIMITS.lenient_json_size} bytes, these are {len(data)})"
            ) from None
        marks = sum(map(data.count, _MARKS))
        if marks > BODY_LIMITS.lenient_json_marks:
            raise ValueError(
                f"{error} (keys without quotes are read among up to "
                f"{BODY_LIMITS.lenient_json_marks} braces, commas and the like, these are {marks})"
            ) from None
    return orjson.loads(_with_quoted_keys(data))


def object_map(pairs: Iterable[tuple[Mapping[str, object], object]]) -> bytes:
    """A map whose keys are objects, as fastjson writes them: ``{{"queueId":0}:5}``."""
    return b"{%b}" % b",".join(encode_json(key) + b":" + encode_json(value) for key, value in pairs)


def _with_quoted_keys(data: bytes) -> bytes:
    """The text, with strings for keys that are integers or objects. Raises ``ValueError``.

    The parser finds other mistakes.
    """
    found: list[bytes] = []
    within = bytearray()
    key_is_next = False
    key: list[bytes] = []
    key_depth = 0
    for token in _TOKEN.findall(data):
        first = token[0]
        if key_depth:
            key.append(token)
            key_depth += 1 if first in b"{[" else -1 if first in b"}]" else 0
            _check_depth(key_depth)
            if not key_depth:
                found.append(orjson.dumps(b"".join(key).decode()))
                key_is_next = False
            continue
        if first in b"{[":
            if key_is_next and first == _OBJECT:
                key, key_depth = [token], 1
                continue
            within.append(first)
            _check_depth(len(within))
            key_is_next = first == _OBJECT
        elif first in b"}]":
            key_is_next = False
            del within[-1:]
        elif first == _COMMA:
            key_is_next = within[-1:] == b"{"
        elif key_is_next and (bare := token.strip(_WHITESPACE)):
            key_is_next = False
            if _INTEGER.fullmatch(bare):
                token = b'"%b"' % bare  # noqa: PLW2901 - it replaces the token
        found.append(token)
    if key_depth:
        raise ValueError("an object as a key has no end")
    return b"".join(found)


def _check_depth(depth: int) -> None:
    if depth > BODY_LIMITS.lenient_json_depth:
        raise ValueError(f"nested deeper than {BODY_LIMITS.lenient_json_depth}")


def _bare_parts(value: object) -> list[bytes]:
    if isinstance(value, dict):
        parts = [b"{"]
        for key, item in value.items():
            parts.append(b"," if len(parts) > 1 else b"")
            parts.append(b"%d:" % key if isinstance(key, int) else orjson.dumps(key) + b":")
            parts += _bare_parts(item)
        return [*parts, b"}"]
    if isinstance(value, list):
        parts = [b"["]
        for item in value:
            parts.append(b"," if len(parts) > 1 else b"")
            parts += _bare_parts(item)
        return [*parts, b"]"]
    return [orjson.dumps(value)]
