"""The tags code: Java's ``String.hashCode`` of a tag."""

from __future__ import annotations

from functools import lru_cache

CACHED_SIZE_MAX = 128
"""Characters. Codes of longer tags are not cached, because clients choose the length."""


def tags_code(tag: str) -> int:
    """The hash of a tag as a ConsumeQueue row holds it: ``h = 31 * h + c`` over UTF-16 code units.

    It has 32 bits and a sign, and is 0 for an empty tag. Few tags are in use at a time, so codes
    are cached.
    """
    return _cached(tag) if len(tag) <= CACHED_SIZE_MAX else _hash(tag)


def _hash(tag: str) -> int:
    code = 0
    encoded = tag.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


_cached = lru_cache(maxsize=65536)(_hash)
