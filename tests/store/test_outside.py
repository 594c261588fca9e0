"""How much of what comes from outside is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.outside import QUOTED_MAX, TEXT_MAX, quoted, shortened

MILLION = 1_000_000


@pytest.mark.parametrize("value", ["", "a'b", b"\x00a", 5, 1.5, None, True, ["a"], {"a": [1]}])
def test_a_short_value_is_shown_as_it_is(value: object) -> None:
    assert quoted(value) == repr(value)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("x" * MILLION, "(1000000 characters)"),
        (b"x" * MILLION, "(1000000 bytes)"),
        (bytearray(MILLION), "(1000000 bytes)"),
        (memoryview(bytes(MILLION)), "(1000000 bytes)"),
        (["x" * MILLION], "(1000000 characters)"),
    ],
)
def test_a_long_value_shows_its_beginning_and_its_size(value: object, size: str) -> None:
    assert size in quoted(value)
    assert len(quoted(value)) < 6 * QUOTED_MAX


@given(
    st.recursive(
        st.text() | st.binary() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nothing_is_quoted_at_length(value: object) -> None:
    assert len(quoted(value)) <= 4 * QUOTED_MAX + 30
    assert len(quoted([value] * 100)) <= 4 * QUOTED_MAX + 30


def test_an_error_is_shortened() -> None:
    assert shortened(ValueError("a word")) == "a word"
    assert shortened("x" * MILLION) == f"{'x' * TEXT_MAX}... (1000000 characters)"
