"""What the leader finds among the pending deliveries of a group in a queue."""

from __future__ import annotations

from broker.group_commit.pending_pop import PendingPopQueue
from broker.state.commands import PopAck, PopChange, PopReceive
from broker.state.pop_queues import PopQueue, pack_runs

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


def test_receive_requests_whose_messages_are_gone_do_not_stay() -> None:
    queue = received()
    for number in range(1000):
        queue.apply(PopChange(*KEY, 0, RENEWED, 90_000 + number, 30_000))
    assert len(queue._due) < 100
    assert sum(len(times) for times in queue._by_nonce.values()) == len(queue._due)
    assert queue.received_with({RENEWED}, 30_000) == [0]
