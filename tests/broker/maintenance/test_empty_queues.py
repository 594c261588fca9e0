"""ConsumeQueues whose rows have all expired: no entry of the log leads to their blocks."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from broker.maintenance.queue_blocks_check import QueueBlocksCheck
from store.state.machine_state import decode_machine_state
from tests.broker.maintenance.started_replicas import restored


@pytest.mark.parametrize("damage", ["unreadable", "lost", ""])
def test_what_the_disk_cannot_read_is_overwritten(
    monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """A file that is missing is none: a refill brings no expired rows."""
    fs, replica = restored(monkeypatch)
    checkpoint = replica.store.recovered.checkpoint
    assert checkpoint is not None
    queue = replica.queues.get("orders", 0)
    assert queue is not None
    queue.first_offset = queue.tail.end
    path, byte = queue.locate(0)
    if damage == "unreadable":
        fs.lose_sector(path, 25 * 20)
    elif damage == "lost":
        fs.vanish(path)
    check = QueueBlocksCheck(replica.queues.get)
    told = []
    for _ in range(2):
        check.begin_pass(decode_machine_state(checkpoint.state))
        told.append(check.end_pass())
    found = [f"{path}, byte {byte}: cannot be read"] if damage == "unreadable" else []
    assert [each.partition(": [Errno")[0] for each in told[0]] == found
    assert told[1] == []
    assert fs.exists(path) == (damage != "lost")
    if damage != "lost":
        rows = queue.on_disk().read_disk(0, queue.tail.end)
        assert crc32c(rows) == queue.tail.crc
