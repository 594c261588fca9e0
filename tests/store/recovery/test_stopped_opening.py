"""A log is read in pieces, and between them its reader can be told to stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.recovery.recovery import Recovery
from tests.store.small_logs import CONFIG, DIRECTORY, Writer, contents, open_store, simulated

COUNT, PIECES = 6, 3
SIZE = 5 << 20
"""Bytes of an entry: more than are read at once."""

BIG = replace(CONFIG, segment_size=8 << 20)


class StopError(Exception):
    pass


class Stops:
    """Lets ``pieces`` be read."""

    def __init__(self, pieces: int) -> None:
        self._left = pieces

    def __call__(self) -> None:
        if self._left == 0:
            raise StopError
        self._left -= 1


def written(fs: SimulatedFileSystem) -> Writer:
    writer = Writer(BIG.segment_size)
    store = open_store(fs, BIG)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT, SIZE))
    store.sync()
    last = writer.entries[-1]
    store.save_mark(last.index, last.end, last.chain_crc, last.index)
    store.close()
    return writer


@pytest.mark.parametrize("pieces", range(PIECES))
def test_a_recovery_that_is_stopped_closes_all_files_and_the_next_begins_again(pieces: int) -> None:
    fs = simulated()
    written(fs)
    with pytest.raises(StopError):
        Recovery(fs, DIRECTORY, BIG, Stops(pieces))
    assert not fs.locks
    store = open_store(fs, BIG)
    assert len(contents(store)) == COUNT
    store.close()
