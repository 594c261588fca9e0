"""Rows of a pull are joined where their records follow each other, compiled as in Python."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.delivery.joined_rows import join_rows, join_rows_in_python
from store.message.batch import QUEUE_ROW

BOTH = pytest.mark.parametrize("join", [join_rows, join_rows_in_python])


def packed(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(QUEUE_ROW.pack(*row) for row in rows)


@st.composite
def rows_of_a_queue(draw: st.DrawFn) -> bytes:
    """Records that follow each other as a rule, and sometimes anything."""
    position, rows = draw(st.integers(0, 1 << 50)), []
    for _ in range(draw(st.integers(0, 12))):
        size = draw(st.integers(91, 200))
        rows.append((position, size, draw(st.integers(-1, 1))))
        position += size + draw(st.sampled_from([0, 0, 0, 48]))
        if draw(st.integers(0, 20)) == 0:
            wrong = st.integers(-(1 << 63), (1 << 63) - 1)
            rows.append((draw(wrong), draw(st.integers(-(1 << 31), (1 << 31) - 1)), draw(wrong)))
    return packed(*rows)


@given(
    rows_of_a_queue(),
    st.none() | st.frozensets(st.integers(-1, 1)),
    st.integers(0, 12),
    st.integers(0, 1000),
)
def test_rows_are_joined_as_in_python(
    rows: bytes, codes: frozenset[int] | None, messages_max: int, bytes_max: int
) -> None:
    looked_at, messages, found = join_rows(rows, codes, messages_max, bytes_max)
    expected = join_rows_in_python(rows, codes, messages_max, bytes_max)
    assert (looked_at, messages) == expected[:2]
    assert [(wrapped(at), wrapped(size), *others) for at, size, *others in found] == [
        (wrapped(at), wrapped(size), *others) for at, size, *others in expected[2]
    ]


def wrapped(number: int) -> int:
    """As a position of eight bytes; damaged rows may end behind it."""
    return number % (1 << 64)


@BOTH
def test_neighbours_are_one_range(join: Any) -> None:
    rows = packed((100, 10, 5), (110, 20, 6), (130, 30, 5), (200, 40, 5))
    found = [(100, 60, 0, 10, 2, 30), (200, 40, 3, 40, 3, 40)]
    assert join(rows, None, 32, 1000) == (4, 4, found)
    assert join(rows, frozenset({5}), 32, 1000) == (
        4,
        3,
        [(100, 10, 0, 10, 0, 10), (130, 30, 2, 30, 2, 30), (200, 40, 3, 40, 3, 40)],
    )


@BOTH
def test_the_first_message_counts_whatever_its_size(join: Any) -> None:
    rows = packed((0, 500, 1), (500, 10, 1), (510, 10, 1))
    assert join(rows, None, 32, 1) == (1, 1, [(0, 500, 0, 500, 0, 500)])
    assert join(rows, None, 2, 1000) == (2, 2, [(0, 510, 0, 500, 1, 10)])
    assert join(rows, frozenset({2}), 1, 1) == (3, 0, [])
    assert join(b"", None, 32, 1000) == (0, 0, [])


@BOTH
def test_half_a_row_is_refused(join: Any) -> None:
    with pytest.raises((ValueError, struct.error)):
        join(packed((0, 91, 1))[:19], None, 32, 1000)


@pytest.mark.parametrize(
    "wrong",
    [
        ("rows", None, 1, 1),
        (bytearray(20), None, 1, 1),
        (bytes(20), {1}, 1, 1),
        (bytes(20), None, "1", 1),
        (bytes(20), None, -1, 1),
        (bytes(20), None, 1, 1 << 63),
        (bytes(20), None, 1),
    ],
)
def test_other_arguments_are_refused(wrong: tuple[Any, ...]) -> None:
    pytest.importorskip("store.message.compiled", reason="built without a C compiler")
    with pytest.raises((TypeError, OverflowError)):
        join_rows(*wrong)
