"""The hash of a tag is Java's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message.tags_code import tags_code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("topicA#key1", -1026010461),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
    ],
)
def test_known_strings_have_the_hash_that_java_gives_them(text: str, code: int) -> None:
    assert tags_code(text) == code


@given(st.text())
def test_the_hash_is_the_polynomial_over_utf_16_code_units(text: str) -> None:
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
    total = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert tags_code(text) % 2**32 == total % 2**32
    assert -(2**31) <= tags_code(text) < 2**31
