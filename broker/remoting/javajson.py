"""JSON as RocketMQ's Java side writes it: maps with integer keys may have them bare.

``{"brokerAddrs":{0:"10.0.0.1:10911"}}`` is not JSON, but it is what fastjson writes and what
clients before 4.9.4 expect; newer ones want quoted keys. Both are read here, both can be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

_OBJECT_KEY = re.compile(rb'(\{(?:"(?:[^"\\]|\\.)*"|[^{}"])*\})(\s*:)', re.DOTALL)
_STRING_OR_BARE_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)', re.DOTALL)


def encode_json(value: object, *, bare_keys: bool = False) -> bytes:
    """JSON of dicts (keys are strings or integers), lists and scalars."""
    if bare_keys:
        return b"".join(_bare_parts(value))
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def decode_json(data: bytes) -> Any:
    """The value of JSON text whose integer keys may be bare; they come back as strings.

    Raises ``ValueError`` where it is not JSON in this sense either.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(_STRING_OR_BARE_KEY.sub(_quote_bare_key, data))


def object_map(pairs: Iterable[tuple[Mapping[str, object], object]]) -> bytes:
    """A map whose keys are objects, as fastjson writes them: ``{{"queueId":0}:5}``."""
    return b"{%b}" % b",".join(encode_json(key) + b":" + encode_json(value) for key, value in pairs)


def quote_object_keys(data: bytes) -> bytes:
    """JSON, where keys were objects without any within: each is a string with its text instead."""
    return _OBJECT_KEY.sub(lambda match: orjson.dumps(match[1].decode()) + match[2], data)


def _quote_bare_key(match: re.Match[bytes]) -> bytes:
    string, before, key, after = match.groups()
    return string if string is not None else b'%b"%b"%b' % (before, key, after)


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
