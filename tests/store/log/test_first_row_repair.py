"""The first retained entry: no chain says whether its row has rotted, or its header."""

from __future__ import annotations

import pytest

from store.log.entry_row import ROW_SIZE
from tests.store.log.test_entry_repair import (
    CHECKPOINT,
    damaged,
    flip_row,
    rot,
    rows_repaired,
    written,
)
from tests.store.small_logs import contents, data_of, open_store, simulated

KIND_BYTE, KIND_BIT = 3, 1
"""Of a header, and of a row: makes a configuration change of data."""
TERM_BYTE = 23


@pytest.mark.parametrize(("byte", "bit"), [(KIND_BYTE, KIND_BIT), (TERM_BYTE, 0)])
def test_no_row_is_made_from_a_header_that_no_chain_covers(byte: int, bit: int) -> None:
    """The entry before it has expired. Its kind and term are in the header and in the row only."""
    fs = simulated()
    store, writer = written(fs)
    store.expire(writer.entries[CHECKPOINT].position)
    first = store.first_index
    assert first > 0
    rot(fs, store, writer.entries[first], byte, bit)
    assert damaged(store) == [first]
    assert rows_repaired(store) == []
    store.repair_entry(writer.entries[first])
    assert damaged(store) == []
    assert contents(store) == data_of(writer.entries[first:])


@pytest.mark.parametrize("byte", [KIND_BYTE, 7, 12, ROW_SIZE - 1])
def test_the_row_of_the_first_retained_entry_is_repaired_with_a_peer_at_the_latest(
    byte: int,
) -> None:
    fs = simulated()
    store, writer = written(fs)
    store.expire(writer.entries[CHECKPOINT].position)
    first = store.first_index
    flip_row(fs, first, byte, KIND_BIT)
    if byte in {7, 12}:  # the place of an entry follows
        assert damaged(store) == []
        assert rows_repaired(store) == [first]
    else:
        assert damaged(store) == [first]
        assert rows_repaired(store) == []
        store.repair_entry(writer.entries[first])
    assert damaged(store) == rows_repaired(store) == []
    fs.power_loss(keep=0.0)
    assert contents(open_store(fs)) == data_of(writer.entries[first:])
