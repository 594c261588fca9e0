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


def lock_never_given_up(patch: Patch) -> None:
    """A released lock stays until it expires."""
    patch.set(QueueLocks, "unlock", lambda _locks, _group, _client_id, _queues: None)


def closed_members_kept(patch: Patch) -> None:
    """A member stays in its group for two minutes after its connection has closed."""

    @patch.instead(ConnectedClients, "_closed")
    def blind(_clients: ConnectedClients, _connection: Connection) -> None:
        """Nobody is forgotten."""


def members_not_notified(patch: Patch) -> None:
    """Members are not notified when others come and go."""
    patch.set(ConnectedClients, "_notify", lambda _clients, _group: None)


def reply_to_another_client(patch: Patch) -> None:
    """A reply goes to another client than the one in its properties."""

    @patch.around(ConnectedClients, "producer_named")
    def any_of(
        named: Original[ClientConnection | None], clients: ConnectedClients, client_id: str
    ) -> ClientConnection | None:
        others = (way for name, (way, _) in clients._by_name.items() if name != client_id)
        return next(others, named(clients, client_id))


# --- the client library


def acknowledged_when_pulled(patch: Patch) -> None:
    """A pulled message counts as consumed before the program gets it."""

    @patch.around(Fetcher, "_take")
    def eager(take: Original[None], fetcher: Fetcher, answer: Any, address: str) -> None:
        take(fetcher, answer, address)
        fetcher._offsets.acknowledge(fetcher.queue, answer.next_offset)


def queue_given_up_without_a_commit(patch: Patch) -> None:
    """A queue goes to another member without a commit, and back to one that has forgotten."""

    @patch.instead(Consumer, "_give_up")
    async def hasty(consumer: Consumer, queue: MessageQueue) -> None:
        await consumer._stop(consumer._fetchers.pop(queue))

    patch.set(OffsetStore, "acknowledged", lambda _offsets, _queue: None)


def batches_of_lost_queues_kept(patch: Patch) -> None:
    """A pulled message is handed out after its queue went to another member."""

    @patch.instead(Consumer, "_stop")
    async def keep(consumer: Consumer, fetcher: Fetcher) -> None:
        del consumer
        await fetcher.stop()


_bug = BugsOf(PUSHING, seconds=8.0)


CLIENTS = "client crash"

BUGS = (
    _bug("N44x", lock_never_given_up, "not within", 30),
    _bug("N45x", closed_members_kept, "not within", 5, "client crash", world=BROKERS),
    _bug("N46x", members_not_notified, "not within", 30, "client crash"),
    _bug("N47x", reply_to_another_client, "not within", 5, world=ASKING),
    _bug("N48x", acknowledged_when_pulled, "was delivered to nobody", 5, CLIENTS, world=BROKERS),
    _bug("N49x", queue_given_up_without_a_commit, "after offset", 5, CLIENTS, world=BROKERS),
    _bug("N50x", batches_of_lost_queues_kept, "after offset", 5, CLIENTS, world=BROKERS),
)
