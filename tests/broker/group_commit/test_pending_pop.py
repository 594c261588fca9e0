"""What the leader finds among the pending deliveries of a group in a queue."""

from __future__ import annotations

from broker.group_commit.pending_pop import PendingPopQueue
from broker.state.commands import (
    Command,
    DeleteGroup,
    DeleteTopic,
    PopAck,
    PopChange,
    PopForget,
    PopReceive,
    PutTopic,
)
from broker.state.pop_queues import PopQueue, pack_runs
from broker.topics_and_groups import TopicConfig
from tests.broker.group_commit.room import Heard, Room, message

KEY = ("readers", "orders", 0)
NONCE, RENEWED = 7, 8


def received() -> PendingPopQueue:
    """Three messages of one receive request, until 60,000."""
    queue = PendingPopQueue(PopQueue(0))
    queue.apply(PopReceive(*KEY, 3, pack_runs([0, 1, 2]), NONCE, 60_000, 0))
    return queue


def test_a_receive_request_is_found_whole_though_its_messages_were_prolonged_apart() -> None:
    queue = received()
    queue.apply(PopChange(*KEY, 1, RENEWED, 90_000, 30_000))
    queue.apply(PopChange(*KEY, 0, RENEWED, 90_001, 30_001))
    assert queue.received_with({NONCE}, 30_001) == [2]
    assert queue.received_with({NONCE, RENEWED}, 30_001) == [0, 1, 2]
    assert queue.received_with({NONCE, RENEWED}, 60_000) == [0, 1]
    queue.apply(PopAck(*KEY, pack_runs([1])))
    assert queue.received_with({RENEWED}, 60_000) == [0]
    assert [offset for offset, _ in queue.visible(90_001)] == [0, 2]
    assert queue.received_with({NONCE, RENEWED}, 90_001) == []


def test_a_deleted_queue_is_forgotten_once_it_is_deleted(room: Room) -> None:
    """Until then the group has no cursor there, though the applied state has one."""
    batcher, state = room.batcher, room.applied.state
    state.apply(PutTopic.of(TopicConfig("orders", 1, 1), 1))
    state.apply(PopReceive(*KEY, 3, pack_runs([0, 1, 2]), NONCE, 60_000, 0))
    ends: tuple[Command, ...] = (
        DeleteTopic("orders", 1),
        DeleteGroup("readers", False, 1),
        PopForget(*KEY),
    )
    for number, command in enumerate(ends):
        batcher.add_command(command)
        room.turn()
        room.batcher.add_message("t", 0, message(b"later"), Heard())
        room.turn()
        assert batcher.pop_queue(KEY) is None
        state.apply(command)
        room.node.commit()
        room.node.commit()
        assert batcher.pop_queue(KEY) is None
        state.apply(PutTopic.of(TopicConfig("orders", 1, 1), 1))
        state.apply(PopReceive(*KEY, number, b"", 0, 0, 0))
        found = batcher.pop_queue(KEY)
        assert found is not None
        assert found.queue.next_offset == number


def test_a_queue_that_is_made_again_before_it_is_deleted_stays(room: Room) -> None:
    batcher, state = room.batcher, room.applied.state
    commands: list[Command] = [
        PopReceive(*KEY, 7, b"", 0, 0, 0),
        PopForget(*KEY),
        PopReceive(*KEY, 3, b"", 0, 0, 0),
    ]
    for command in commands:
        batcher.add_command(command)
    room.turn()
    for _ in range(2):
        found = batcher.pop_queue(KEY)
        assert found is not None
        assert found.queue.next_offset == 3
        if room.node.dones:
            for command in commands:
                state.apply(command)
            room.node.commit()


def test_receive_requests_whose_messages_are_gone_do_not_stay() -> None:
    queue = received()
    for number in range(1000):
        queue.apply(PopChange(*KEY, 0, RENEWED, 90_000 + number, 30_000))
    assert len(queue._due) < 100
    assert sum(len(times) for times in queue._by_nonce.values()) == len(queue._due)
    assert queue.received_with({RENEWED}, 30_000) == [0]


def test_a_look_with_an_older_time_loses_no_delivery() -> None:
    """Its request waited for a lock or a disk while another one looked."""
    queue = PendingPopQueue(PopQueue(0))
    queue.apply(PopReceive(*KEY, 1, pack_runs([0]), 11, 90, 0))
    queue.apply(PopReceive(*KEY, 2, pack_runs([1]), 12, 150, 0))
    assert next(queue.visible(200))[0] == 0
    queue.apply(PopReceive(*KEY, 2, pack_runs([0]), 13, 300, 200))
    assert [*queue.visible(100)] == []
    assert queue.next_visible_ms(100) == 150
    assert queue.received_with({12}, 100) == [1]
    assert [offset for offset, _ in queue.visible(250)] == [1]
    assert [offset for offset, _ in queue.visible(300)] == [0, 1]
