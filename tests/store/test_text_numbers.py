"""Numbers in text are of the digits 0 to 9 with at most one sign."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.text_numbers import decimal_number, whole_number

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


@pytest.mark.parametrize("text", ["", "1_0", "٣", " 3", "-1", "+1", "nan", "inf", ".", "1e", "0x1"])
def test_what_is_no_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        decimal_number(text)


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3.0), ("0.5", 0.5), (".5", 0.5), ("2.", 2.0), ("1e2", 100.0)]
)
def test_decimals_are_read(text: str, number: float) -> None:
    assert decimal_number(text) == number
