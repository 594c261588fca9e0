"""The rows of a slot in memory: those that come next, in order, and never too many."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from broker.scheduled import slot_rows
from broker.scheduled.slot_rows import SlotRows, TimedRow

MOST = 4
TIMES = st.lists(st.integers(0, 5_000), max_size=40)


def row(deliver_ms: int, offset: int) -> TimedRow:
    return TimedRow(deliver_ms, offset, 0, 0)


@given(TIMES)
def test_the_next_rows_are_there_in_order_and_later_ones_are_known_to_be_left_out(
    times: list[int],
) -> None:
    rows = SlotRows()
    with patch.object(slot_rows, "ROWS_MAX", MOST):
        for offset, deliver_ms in enumerate(times):
            rows.add(row(deliver_ms, offset))
            assert len(rows) <= 2 * MOST
    kept = list(rows)
    ordered = sorted(row(deliver_ms, offset) for offset, deliver_ms in enumerate(times))
    assert kept == ordered[: len(kept)]
    assert len(kept) >= min(len(times), MOST)
    assert rows.is_cut == (len(kept) < len(times))


@given(TIMES, st.integers(0, 5_000), st.integers(0, 40))
def test_what_is_delivered_is_dropped(times: list[int], deliver_ms: int, offset: int) -> None:
    rows = SlotRows()
    made = [row(each, number) for number, each in enumerate(times)]
    for each in made:
        rows.add(each)
    rows.drop_until((deliver_ms, offset))
    assert list(rows) == sorted(each for each in made if each.key > (deliver_ms, offset))
    assert (len(rows), bool(rows)) == (len(list(rows)), bool(list(rows)))
