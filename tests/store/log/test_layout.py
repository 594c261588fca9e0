"""Where entries lie: the rule of positions, at its edges and against a slow reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import EntryTooLargeError
from store.log.layout import (
    entry_size_max,
    next_position,
    parse_segment_name,
    segment_name,
    segment_start,
)


@pytest.mark.parametrize(
    ("end", "size", "position"),
    [
        (0, 60, 0),
        (30, 61, 30),
        (30, 62, 30),
        (30, 63, 100),
        (92, 1, 100),
        (130, 62, 130),
        (130, 63, 200),
        (0, 92, 0),
        (100, 92, 100),
    ],
)
def test_an_entry_goes_where_it_and_a_padding_fit(end: int, size: int, position: int) -> None:
    assert next_position(end, size, 100) == position


def test_an_entry_larger_than_any_segment_holds_is_refused_by_name_of_its_size() -> None:
    assert entry_size_max(100) == 92
    with pytest.raises(EntryTooLargeError, match="93 bytes exceeds the 92"):
        next_position(50, 93, 100)


@given(st.lists(st.integers(1, 92), max_size=50))
def test_entries_never_overlap_nor_cross_a_segment_and_leave_room_for_padding(
    sizes: list[int],
) -> None:
    end = 0
    for size in sizes:
        position = next_position(end, size, 100)
        assert position >= end
        assert position == end or position % 100 == 0
        assert segment_start(position, 100) == segment_start(position + size - 1, 100)
        assert position % 100 + size <= 92
        end = position + size


@given(st.integers(0, 10**20 - 1))
def test_a_segment_name_tells_its_position(position: int) -> None:
    assert parse_segment_name(segment_name(position)) == position


@pytest.mark.parametrize("name", ["", "1", "0" * 19, "0" * 21, "0" * 19 + "x", "0" * 20 + ".tmp"])
def test_other_names_are_not_segments(name: str) -> None:
    assert parse_segment_name(name) is None


def test_digits_of_other_scripts_are_not_a_segment_name() -> None:
    assert parse_segment_name("\N{ARABIC-INDIC DIGIT ZERO}" * 20) is None
