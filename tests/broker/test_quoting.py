"""How much of what comes from outside is shown."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.http.errors import HttpRefusedError
from broker.remoting.protocol.errors import FieldError, FrameError, RequestError
from broker.remoting.protocol.frame import Frame
from store.quoting import QUOTED_MAX, TEXT_MAX, quoted, shortened

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


@pytest.mark.parametrize(
    "error",
    [
        FrameError("x" * MILLION),
        RequestError(1, "x" * MILLION),
        FieldError("x" * MILLION),
        HttpRefusedError(400, "x" * MILLION),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_told_of_a_request_is_shortened(error: Exception) -> None:
    assert len(str(error)) < TEXT_MAX + 100
    if isinstance(error, RequestError):
        assert len(error.remark) < TEXT_MAX + 100


def test_a_frame_in_a_log_line_is_short() -> None:
    fields = {"x" * MILLION: "y" * MILLION, **{str(n): "z" * 1000 for n in range(1000)}}
    frame = Frame(10, 1, remark="r" * MILLION, ext=dict(fields), body=bytes(MILLION))
    assert len(repr(frame)) < 1000


# Of what is said where others can make it be said: whoever repeats what they sent, quotes it.
SAYING = ("remoting", "ingest", "delivery", "nameserver", "filter")


def test_what_others_sent_is_quoted_in_one_way() -> None:
    broker = Path(__file__).parents[2] / "broker"
    repeated = [
        f"{path}:{node.lineno}"
        for room in SAYING
        for path in (broker / room).rglob("*.py")
        if "!r" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FormattedValue) and node.conversion == ord("r")
    ]
    assert not repeated, "use store.quoting.quoted instead of !r"
