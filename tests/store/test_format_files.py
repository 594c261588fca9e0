"""What docs/format.md says of files and their lengths holds of the files."""

from __future__ import annotations

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import CorruptEntryError
from store.io.two_slot_file import SLOT_SIZE, decode_slot
from store.log.entry import PADDING, PADDING_MAGIC, PADDING_SIZE, check_chain, decode_entry
from store.log.layout import next_position, segment_name
from store.message.batch import QueueRun
from store.message.record import make_pending_message
from store.state.hard_state import DurableMark
from store.verify import verify_replicas
from tests.store.sample_replica import GROUP, HOST, SEGMENT_SIZE, STORED_MS, Replica, write_replica
from tests.store.small_logs import simulated


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


def size_of(fs: SimulatedFileSystem, path: str) -> int:
    return len(fs.visible_bytes(path))


def snapshot(replica: Replica) -> str:
    target = f"/snap/{GROUP}/{replica.node}"
    for _ in replica.store.begin_snapshot(target, STORED_MS).steps():
        pass
    return target


def test_a_closed_segment_may_end_behind_its_padding(fs: SimulatedFileSystem) -> None:
    replica = write_replica(fs)
    closed = {entry.position // SEGMENT_SIZE for entry in replica.entries[:-1]}
    closed.discard(replica.entries[-1].position // SEGMENT_SIZE)
    assert len(closed) > 1
    for number in closed:
        last = max(e.end for e in replica.entries if e.position // SEGMENT_SIZE == number)
        end = last - number * SEGMENT_SIZE + PADDING_SIZE
        path = f"{replica.directory}/commitlog/{segment_name(number * SEGMENT_SIZE)}"
        assert end <= size_of(fs, path) <= SEGMENT_SIZE
        padding = fs.visible_bytes(path)[end - PADDING_SIZE : end]
        assert PADDING.unpack(padding) == (PADDING_MAGIC, SEGMENT_SIZE - end + PADDING_SIZE)
        fs.open(path).truncate(end)
    assert verify_replicas(fs, [replica.directory]).findings == []
    again = Replica(fs)
    assert again.store.recovered.last_index == replica.entries[-1].index
    again.close()


def test_a_snapshot_has_no_other_state_than_the_page_says(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    for number in range(30):
        replica.put("orders", 0, 4, first=4 * number)
    replica.checkpoint()
    replica.put("orders", 0, 1)
    replica.store.save_evidence([])
    target = snapshot(replica)
    last = replica.entries[-2]
    names = [f"checkpoint-{last.index:020d}", "format", "mark", "tails", "vote"]
    assert fs.list_directory(f"{target}/state") == names
    segments = fs.list_directory(f"{target}/commitlog")
    assert size_of(fs, f"{target}/commitlog/{segments[-1]}") == last.end - int(segments[-1])
    replica.close()


def test_a_key_file_has_the_name_of_the_first_record_with_a_key(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    plain = make_pending_message("orders", b"x", b"TAGS\x01a\x02", born_timestamp=1, born_host=HOST)
    replica.send([QueueRun("orders", 0, 0, [plain])])
    replica.checkpoint()
    assert not fs.exists(f"{replica.directory}/keyindex")
    replica.send([QueueRun("orders", 0, 1, [plain])])
    position = replica.put("orders", 0, 1).position + 48
    replica.checkpoint()
    assert fs.list_directory(f"{replica.directory}/keyindex") == [segment_name(position)]
    data = fs.visible_bytes(f"{replica.directory}/keyindex/{segment_name(position)}")
    assert int.from_bytes(data[8:16], "big") == position
    replica.mark()
    replica.close()
    assert verify_replicas(fs, [replica.directory]).findings == []


def test_a_queue_without_rows_needs_no_directory(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    replica.put("orders", 3, 5)
    replica.put("bills", 0, 1)
    replica.checkpoint()
    replica.send([], [["delete-topic", "orders", 1]])
    replica.checkpoint()
    replica.mark()
    assert ("orders", 3, 5, 5) in replica.lengths()
    replica.close()
    # As after the release of its rows: the older checkpoint, which still counts on them, is gone.
    checkpoints = fs.list_directory(f"{replica.directory}/state")
    older = min(name for name in checkpoints if name.startswith("checkpoint-"))
    fs.remove(f"{replica.directory}/state/{older}")
    fs.remove_tree(f"{replica.directory}/consumequeue/orders")
    assert verify_replicas(fs, [replica.directory]).findings == []
    again = Replica(fs)
    again.queues.restore(replica.lengths())
    queue = again.queues.get("orders", 3)
    assert queue is not None
    assert (queue.first_offset, queue.end_offset) == (5, 5)
    again.close()


def test_the_chain_before_an_expired_log_is_kept_nowhere(fs: SimulatedFileSystem) -> None:
    replica = Replica(fs)
    while replica.end < 3 * SEGMENT_SIZE:
        replica.put("orders", 0, 8, first=8 * len(replica.entries))
    replica.send([], [["expire", SEGMENT_SIZE]])
    replica.checkpoint()
    replica.mark()
    replica.store.expire(SEGMENT_SIZE)
    replica.close()
    slot = decode_slot(fs.visible_bytes(f"{replica.directory}/state/mark")[:SLOT_SIZE])
    assert slot is not None
    mark = DurableMark.unpack(slot[1], "mark")
    first = replica.entries[mark.first_index]
    assert mark.first_index > 0
    assert mark.first_position == first.position
    data = fs.visible_bytes(f"{replica.directory}/commitlog/{segment_name(SEGMENT_SIZE)}")
    found = decode_entry(data, first.position - SEGMENT_SIZE)
    with pytest.raises(CorruptEntryError):
        check_chain(found, 0)
    position = next_position(found.end, replica.entries[found.index + 1].size, SEGMENT_SIZE)
    following = decode_entry(data, position - SEGMENT_SIZE, found.chain_crc)
    assert following == replica.entries[found.index + 1]
    assert verify_replicas(fs, [replica.directory]).findings == []
