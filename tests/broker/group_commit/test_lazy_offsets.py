"""Offsets that may wait are committed with what comes next."""

from __future__ import annotations

from broker.group_commit.batcher import PIPELINE_ENTRIES
from broker.state.commands import CommitOffset, decode_commands
from tests.broker.group_commit.room import Room


def test_lazy_offsets_travel_with_the_next_entry(room: Room) -> None:
    room.batcher.add_lazy_offset("g", "t", 0, 1)
    room.batcher.add_lazy_offset("g", "t", 0, 2)
    room.turn()
    assert room.node.batches == []
    room.add(b"x")
    room.turn()
    assert decode_commands(room.node.batches[0].commands) == [CommitOffset("g", "t", 0, 2)]


def test_lazy_offsets_wait_no_longer_than_a_second(room: Room) -> None:
    room.batcher.add_lazy_offset("g", "t", 0, 2)
    room.turn(1.001)
    room.turn()
    assert decode_commands(room.node.batches[0].commands) == [CommitOffset("g", "t", 0, 2)]
    room.turn(5)
    assert len(room.node.batches) == 1


def test_more_lazy_offsets_than_an_entry_holds_wait_no_longer() -> None:
    room = Room(segment_size=16 << 10)
    for queue_id in range(100):
        room.batcher.add_lazy_offset("g", "t", queue_id, 2)
    room.turn(1.001)
    room.turn()
    while room.node.dones:
        room.node.commit()
        room.turn()
    room.loop.close()
    assert len(room.node.batches) > 2
    committed = [each for batch in room.node.batches for each in decode_commands(batch.commands)]
    assert committed == [CommitOffset("g", "t", each, 2) for each in range(100)]


def test_while_commits_stall_lazy_offsets_wait_in_one_batch(room: Room) -> None:
    for number in range(PIPELINE_ENTRIES):
        room.add(b"%d" % number)
        room.turn()
    for offset in range(1, 61):
        room.batcher.add_lazy_offset("g", "t", 0, offset)
        room.turn(1.001)
    while room.node.dones:
        room.node.commit()
        room.turn(1.001)
    assert len(room.node.batches) <= PIPELINE_ENTRIES + 2
    assert decode_commands(room.node.batches[-1].commands)[-1] == CommitOffset("g", "t", 0, 60)


def test_a_lazy_offset_that_is_committed_already_makes_no_entry(room: Room) -> None:
    room.applied.state.apply(CommitOffset("g", "t", 0, 2))
    room.batcher.add_lazy_offset("g", "t", 0, 2)
    room.turn(5)
    assert room.node.batches == []


def test_an_offset_committed_by_request_replaces_a_lazy_one(room: Room) -> None:
    room.batcher.add_lazy_offset("g", "t", 0, 2)
    room.batcher.add_command(CommitOffset("g", "t", 0, 9))
    room.turn()
    assert decode_commands(room.node.batches[0].commands) == [CommitOffset("g", "t", 0, 9)]
