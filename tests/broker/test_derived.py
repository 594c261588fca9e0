"""The check of derived files against the log, where some of the log cannot be read."""

from __future__ import annotations

from random import Random

import pytest

from broker.derived import DerivedCheck
from simulator.disk import SimulatedFileSystem
from store.consumequeue import ROWS_PER_FILE
from store.keyindex import KeyIndex
from tests.store import replicas

READ_BYTES = 1 << 20


def test_good_rows_stay_when_an_entry_between_them_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows behind the gap do not follow those before it."""
    monkeypatch.setattr(replicas, "ROWS_PER_FILE", ROWS_PER_FILE)
    fs = SimulatedFileSystem(Random(1))
    directory = replicas.write_replica(fs).directory
    store = replicas.Replica(fs).store
    files = [path for path in fs.files() if "/consumequeue/" in path]
    before = [fs.visible_bytes(path) for path in files]
    check = DerivedCheck(fs, directory, store, KeyIndex(fs, f"{directory}/keyindex"))
    check.begin_pass()
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    whole = [entry for entry in entries if entry.index not in (7, 8, 20)]
    assert len(whole) > 20
    assert check.check(whole) == []
    assert [fs.visible_bytes(path) for path in files] == before


def test_a_row_that_differs_behind_a_damaged_entry_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "ROWS_PER_FILE", ROWS_PER_FILE)
    fs = SimulatedFileSystem(Random(1))
    directory = replicas.write_replica(fs).directory
    store = replicas.Replica(fs).store
    path = next(path for path in fs.files() if "/consumequeue/orders/0/" in path)
    before = fs.visible_bytes(path)
    fs.flip_bit(path, 20 * 25 + 3)
    check = DerivedCheck(fs, directory, store, KeyIndex(fs, f"{directory}/keyindex"))
    check.begin_pass()
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    told = check.check([entry for entry in entries if entry.index != 7])
    assert told == [f"{path}, byte {20 * 25}: the row differs from the log"]
    assert fs.visible_bytes(path) == before
