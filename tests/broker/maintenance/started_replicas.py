"""A replica on a simulated disk, as a broker has it that starts."""

from __future__ import annotations

from random import Random

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.index.queue_rows import ROWS_PER_FILE
from store.state.machine_state import decode_machine_state
from tests.store import sample_replica

READ_BYTES = 1 << 20


def restore(replica: sample_replica.Replica) -> None:
    """As a broker does that starts."""
    checkpoint = replica.store.recovered.checkpoint
    assert checkpoint is not None
    replica.queues.restore(
        (each.topic, each.queue_id, each.first_offset, each.end_offset)
        for each in decode_machine_state(checkpoint.state).queues
    )


def restored(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[SimulatedFileSystem, sample_replica.Replica]:
    """A disk with the sample replica, whose ConsumeQueues have one file each, and its broker."""
    monkeypatch.setattr(sample_replica, "ROWS_PER_FILE", ROWS_PER_FILE)
    fs = SimulatedFileSystem(Random(1))
    sample_replica.write_replica(fs)
    replica = sample_replica.Replica(fs)
    restore(replica)
    return fs, replica
