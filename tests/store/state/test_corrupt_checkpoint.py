"""A checkpoint that rotted, and the one that takes its place."""

from __future__ import annotations

from tests.store.recovery.test_log_damage import checkpointed_log
from tests.store.small_logs import DIRECTORY, open_store

STATE = f"{DIRECTORY}/state"


def test_a_checkpoint_of_the_entry_whose_checkpoint_rotted_stays() -> None:
    """As a group saves it where nothing was applied since."""
    fs, writer = checkpointed_log()
    rotten = f"{STATE}/checkpoint-{15:020d}"
    fs.flip_bit(rotten, 30)
    store = open_store(fs)
    assert store.save_checkpoint(writer.checkpoint(15))
    assert fs.exists(rotten)
    store.close()
    assert open_store(fs).recovered.checkpoint == writer.checkpoint(15)


def test_a_rotten_checkpoint_goes_when_the_next_is_saved() -> None:
    fs, writer = checkpointed_log()
    rotten = f"{STATE}/checkpoint-{15:020d}"
    fs.flip_bit(rotten, 30)
    store = open_store(fs)
    assert store.save_checkpoint(writer.checkpoint(14))
    assert not fs.exists(rotten)
