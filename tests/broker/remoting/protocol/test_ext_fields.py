"""Ext fields in every spelling that clients use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import ExtValue, Frame


def request(value: ExtValue) -> Frame:
    return Frame(310, 1, ext={"field": value})


@pytest.mark.parametrize("value", ["42", 42, 42.0, "+42", "042"])
def test_an_integer_is_read_from_text_and_from_a_number(value: ExtValue) -> None:
    assert ext_int(request(value), "field") == 42


@pytest.mark.parametrize(
    "value", ["4x", "4.5", "1_0", "٣", " 42", 4.5, float("inf"), float("nan"), "9" * 5000]
)
def test_what_is_no_integer_is_named(value: ExtValue) -> None:
    with pytest.raises(FieldError, match="code 1: field field is not an integer"):
        ext_int(request(value), "field")


def test_a_list_is_no_integer() -> None:
    frame = Frame(310, 1)
    frame.ext["field"] = [1]  # type: ignore[assignment]  # as a peer may
    with pytest.raises(FieldError, match="not an integer"):
        ext_int(frame, "field")


@pytest.mark.parametrize("value", [None, ""])
def test_an_integer_that_is_null_or_empty_is_missing(value: ExtValue) -> None:
    with pytest.raises(FieldError, match="missing field field"):
        ext_int(request(value), "field")


def test_an_absent_integer_takes_the_default() -> None:
    assert ext_int(Frame(310, 1), "queueId", -1) == -1
    assert ext_int(Frame(310, 1), "queueId", None) is None


@pytest.mark.parametrize(("value", "fits"), [(-1, False), (0, True), (7, True), (8, False)])
def test_an_integer_must_keep_to_its_bounds(value: int, fits: bool) -> None:
    if fits:
        assert ext_int(request(value), "field", minimum=0, maximum=7) == value
    else:
        with pytest.raises(FieldError, match="is not between 0 and 7"):
            ext_int(request(value), "field", minimum=0, maximum=7)


def test_an_integer_never_exceeds_64_bits() -> None:
    assert ext_int(request(str(2**63 - 1)), "field") == 2**63 - 1
    with pytest.raises(FieldError, match="is not between"):
        ext_int(request(str(2**63)), "field")
    with pytest.raises(FieldError, match="is not between"):
        ext_int(request(INT32_MAX + 1), "field", maximum=INT32_MAX)


@pytest.mark.parametrize(
    ("value", "text"), [("T", "T"), ("", ""), (7, "7"), (True, "true"), (False, "false")]
)
def test_text_is_read_from_any_scalar(value: ExtValue, text: str) -> None:
    assert ext_str(request(value), "field") == text


def test_an_object_is_no_text() -> None:
    frame = Frame(310, 1)
    frame.ext["field"] = {}  # type: ignore[assignment]  # as a peer may
    with pytest.raises(FieldError, match="field field is not a string"):
        ext_str(frame, "field")


def test_a_missing_field_is_named_as_clients_see_it() -> None:
    with pytest.raises(FieldError) as caught:
        ext_str(Frame(310, 1), "topic")
    assert (caught.value.code, caught.value.remark) == (1, "missing field topic")


def test_absent_text_takes_the_default() -> None:
    assert ext_str(Frame(310, 1), "topic", "TBW102") == "TBW102"


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        ("true", True),
        ("TRUE", True),
        ("1", True),
        (True, True),
        (1, True),
        ("false", False),
        ("0", False),
        (False, False),
        (0, False),
        ("yes", False),
    ],
)
def test_a_boolean_is_read_in_every_spelling(value: ExtValue, truth: bool) -> None:
    assert ext_bool(request(value), "field") is truth


def test_an_absent_boolean_takes_the_default_or_is_missing() -> None:
    assert ext_bool(Frame(310, 1), "batch", False) is False
    with pytest.raises(FieldError, match="missing field batch"):
        ext_bool(Frame(310, 1), "batch")


@given(st.text(max_size=20) | st.integers() | st.floats() | st.booleans() | st.none())
def test_no_value_escapes_the_readers_with_another_error(value: ExtValue) -> None:
    for read in (ext_int, ext_str, ext_bool):
        try:
            read(request(value), "field")
        except FieldError as error:
            assert "field" in error.remark  # noqa: PT017 - either outcome is right
