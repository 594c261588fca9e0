"""The property string of a message: ``key 0x01 value 0x02 key 0x01 value 0x02 ...``.

A writer ends with 0x02. A reader also accepts a string without the last 0x02, and skips a pair
without 0x01 (RocketMQ's ``MessageDecoder``). Keys and values cannot contain the two separators.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_END = b"\x01"
PAIR_END = b"\x02"

KEYS = b"KEYS"
TAGS = b"TAGS"
UNIQUE_KEY = b"UNIQ_KEY"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The string of a mapping. Raises ``ValueError`` if a name or value has a separator."""
    for name, value in properties.items():
        if any(separator in text for text in (name, value) for separator in "\x01\x02"):
            raise ValueError(f"property {name!r}={value!r} contains a separator (0x01 or 0x02)")
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def decode_properties(encoded: bytes) -> dict[str, str]:
    """The mapping of a string. Bytes that are not UTF-8 become replacement characters."""
    properties: dict[str, str] = {}
    for pair in encoded.decode(errors="replace").split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator:
            properties[name] = value
    return properties


def find_property(encoded: bytes, name: bytes) -> bytes | None:
    """The value of one property, ``None`` without it. No other property is decoded."""
    if name not in encoded:
        return None
    _, found, rest = (PAIR_END + encoded).partition(PAIR_END + name + NAME_END)
    return rest.partition(PAIR_END)[0] if found else None
