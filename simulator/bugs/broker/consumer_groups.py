"""Planted bugs N of consumer groups: held pulls, locks, offset resets, members."""

from __future__ import annotations

from typing import Any

from broker.client.consumer.consumer import Consumer
from broker.client.consumer.fetcher import Fetcher
from broker.client.consumer.offset_store import OffsetStore
from broker.client.message import MessageQueue
from broker.delivery.queue_locks import QueueLocks
from broker.remoting.connected_clients import ClientConnection, ConnectedClients
from broker.remoting.connection import Connection
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import ASKING, BROKERS, PUSHING

CLIENTS = "client crash"
bug = BugsOf(BROKERS, seconds=8.0)


@bug("N44x", "not within", 30, world=PUSHING)
def lock_never_given_up(patch: Patch) -> None:
    """A released lock stays until it expires."""
    patch.set(QueueLocks, "unlock", lambda _locks, _group, _client_id, _queues: None)


@bug("N45x", "not within", 5, "client crash")
def closed_members_kept(patch: Patch) -> None:
    """A member stays in its group for two minutes after its connection has closed."""

    @patch.instead(ConnectedClients, "_closed")
    def blind(_clients: ConnectedClients, _connection: Connection) -> None:
        """Nobody is forgotten."""


@bug("N46x", "not within", 30, "client crash", world=PUSHING)
def members_not_notified(patch: Patch) -> None:
    """Members are not notified when others come and go."""
    patch.set(ConnectedClients, "_notify", lambda _clients, _group: None)


@bug("N47x", "not within", 5, world=ASKING)
def reply_to_another_client(patch: Patch) -> None:
    """A reply goes to another client than the one in its properties."""

    @patch.around(ConnectedClients, "producer_named")
    def any_of(
        named: Original[ClientConnection | None], clients: ConnectedClients, client_id: str
    ) -> ClientConnection | None:
        others = (way for name, (way, _) in clients._by_name.items() if name != client_id)
        return next(others, named(clients, client_id))


# --- the client library


@bug("N48x", "was delivered to nobody", 5, CLIENTS)
def acknowledged_when_pulled(patch: Patch) -> None:
    """A pulled message counts as consumed before the program gets it."""

    @patch.around(Fetcher, "_take")
    def eager(take: Original[None], fetcher: Fetcher, answer: Any, address: str) -> None:
        take(fetcher, answer, address)
        fetcher._offsets.acknowledge(fetcher.queue, answer.next_offset)


@bug("N49x", "after offset", 5, CLIENTS)
def queue_given_up_without_a_commit(patch: Patch) -> None:
    """A queue goes to another member without a commit, and back to one that has forgotten."""

    @patch.instead(Consumer, "_give_up")
    async def hasty(consumer: Consumer, queue: MessageQueue) -> None:
        await consumer._stop(consumer._fetchers.pop(queue))

    patch.set(OffsetStore, "acknowledged", lambda _offsets, _queue: None)


@bug("N50x", "after offset", 300, CLIENTS)
def batches_of_lost_queues_kept(patch: Patch) -> None:
    """A pulled message is handed out after its queue went to another member."""

    @patch.instead(Consumer, "_stop")
    async def keep(consumer: Consumer, fetcher: Fetcher) -> None:
        del consumer
        await fetcher.stop()
