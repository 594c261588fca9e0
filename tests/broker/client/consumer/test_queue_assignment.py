"""Sharing out queues: the arithmetic against dealing them out one by one."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker.client.consumer.queue_assignment import allocate
from broker.client.message import MessageQueue


def dealt(queues: int, clients: int) -> list[int]:
    """How many each client gets, by giving one more to each in turn."""
    shares = [0] * clients
    for number in range(queues):
        shares[number % clients] += 1
    return shares


@given(st.integers(0, 40), st.integers(1, 12), st.integers())
def test_every_queue_has_one_owner_and_shares_are_fair(
    queue_count: int, client_count: int, seed: int
) -> None:
    queues = [MessageQueue("T", f"b{number % 2}", number // 2) for number in range(queue_count)]
    clients = [f"c{number:02}" for number in range(client_count)]
    Random(seed).shuffle(queues)
    Random(seed).shuffle(clients)
    shares = [allocate(queues, clients, client) for client in sorted(clients)]
    assert [queue for share in shares for queue in share] == sorted(queues)
    assert [len(share) for share in shares] == dealt(queue_count, client_count)


def test_a_stranger_gets_nothing() -> None:
    assert allocate([MessageQueue("T", "b", 0)], ["c1", "c2"], "c3") == []
