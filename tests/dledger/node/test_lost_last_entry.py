"""The last entry that was known to be durable is gone, and so may be what came behind it."""

from __future__ import annotations

from tests.dledger.node.test_recovering_node import (
    KNOWN,
    OTHER,
    THIRD,
    log_with_a_checkpoint,
    path_of,
    repair,
)
from tests.store.small_logs import CONFIG, open_store


def test_what_was_overwritten_together_with_the_last_known_entry_is_missed() -> None:
    """A write to a wrong place covers both. Only the first of them is known to have been there."""
    fs, writer = log_with_a_checkpoint(3)
    last = writer.entries[KNOWN]
    begin = last.position % CONFIG.segment_size
    fs.overwrite(path_of(last), bytes(last.size + 200), begin)
    repair(fs, {"n1": writer.entries}, config=OTHER)
    store = open_store(fs, THIRD)
    assert store.last_index == KNOWN
    assert store.recovered.incarnation == OTHER.incarnation
