"""The size of a text with each escape as one byte, however its bytes come."""

from __future__ import annotations

import json
from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st

from broker.http.decoded_size import DecodedSize

TEXTS = st.text(st.characters() | st.sampled_from('\\u"\\n\x01é😀'))
CUTS = st.lists(st.integers(0, 200), max_size=9).map(sorted)


def size_of(text: bytes, cuts: list[int]) -> int:
    """As counted of a text that comes in pieces that end there."""
    size, so_far, counted = 0, bytearray(), DecodedSize()
    for start, end in pairwise([0, *cuts, len(text)]):
        so_far += text[start:end]
        size = counted.of(so_far)
    return size


@given(TEXTS, CUTS)
def test_an_escape_counts_as_one_byte(text: str, cuts: list[int]) -> None:
    escaped = json.dumps(text).encode()
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2  # one escape each
    assert size_of(escaped, cuts) == units + 2


@given(TEXTS.filter(lambda text: text.encode(errors="ignore").decode() == text), CUTS)
def test_other_bytes_count_as_they_are(text: str, cuts: list[int]) -> None:
    assert size_of(orjson.dumps(text), cuts) == len(text.encode()) + 2
