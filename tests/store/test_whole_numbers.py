"""Numbers in text are of the digits 0 to 9 with at most one sign."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.whole_numbers import whole_number

ODD = ["", "-", "+", "1_0", "٣", "3٣", "²", " 3", "3 ", "3\n", "--3", "+-3", "0x3", "1e3", "3.0"]


@pytest.mark.parametrize("text", ODD)
def test_what_only_python_takes_for_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        whole_number(text)
    with pytest.raises(ValueError, match="is not a whole number"):
        whole_number(text.encode())


@given(st.integers(), st.sampled_from(["", "0", "000"]))
def test_numbers_are_read_from_text_and_from_bytes(number: int, zeros: str) -> None:
    sign = "-" if number < 0 else ""
    text = f"{sign}{zeros}{abs(number)}"
    assert whole_number(text) == whole_number(text.encode()) == number
    assert sign or whole_number(f"+{text}") == number


def test_more_digits_than_any_number_has_are_refused() -> None:
    with pytest.raises(ValueError, match="4300"):
        whole_number("9" * 5000)
