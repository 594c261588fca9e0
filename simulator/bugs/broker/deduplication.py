"""Planted bugs N of requests that are sent again: the memory of them, and the comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.client.producer.pending_send import PendingSend
from broker.client.producer.send_dispatcher import SendDispatcher
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import Completion, NewMessages, Waiter
from broker.ingest.deduplication import Deduplicator, _SuspectedRetry
from broker.state.deduplication_window import DeduplicationIndex, RecentRequests
from simulator.bugs.broker.lost_state import not_in_checkpoints
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS, BURSTS
from store.message.record import PendingMessage

TWICE = "is stored twice"
LOSSES = ("crash", "partition", "loss")
bug = BugsOf(BROKERS, seconds=8.0)


@bug("N1x", TWICE, 5, *LOSSES)
def retries_of_an_earlier_leader_unknown(patch: Patch) -> None:
    """A new leader does not know the requests that the log lists."""
    patch.set(DeduplicationIndex, "begin", lambda _known, _recent: None)


@bug("N2x", TWICE, 30, world=BURSTS)
def own_requests_unknown(patch: Patch) -> None:
    """A leader knows the requests of earlier leaders, but not its own."""
    one, several = Batcher.add_message, Batcher.add_messages

    @patch.instead(Batcher, "add_message")
    def add_message(
        batcher: Batcher, topic: str, queue_id: int, message: PendingMessage, waiter: Waiter
    ) -> None:
        one(batcher, topic, queue_id, message, waiter)
        _forget(batcher, message)

    @patch.instead(Batcher, "add_messages")
    def add_messages(batcher: Batcher, new: NewMessages, waiter: Waiter) -> None:
        several(batcher, new, waiter)
        _forget(batcher, new.messages[0])


def _forget(batcher: Batcher, message: PendingMessage) -> None:
    for hash_ in message.key_hashes[:1]:
        batcher.deduplication_index.newer.pop(hash_, None)


@bug("N3x", TWICE, 40, *LOSSES)
def requests_of_batches_not_noted(patch: Patch) -> None:
    """The log lists single messages of an entry, but no batches."""
    several = Batcher.add_messages

    @patch.instead(Batcher, "add_messages")
    def add_messages(batcher: Batcher, new: NewMessages, waiter: Waiter) -> None:
        several(batcher, new, waiter)
        if len(new.messages) > 1 and new.messages[0].key_hashes:
            del batcher._open.requests[-1]
            _forget(batcher, new.messages[0])


@bug("N4x", TWICE, 30, world=BURSTS)
def first_try_not_waited_for(patch: Patch) -> None:
    """A retry is looked up at once, though the first try is in progress."""

    @patch.instead(Batcher, "add_barrier")
    def at_once(batcher: Batcher, completion: Completion) -> None:
        batcher._loop.call_soon(completion, None)


@bug("N5x", TWICE, 30, world=BURSTS)
def third_try_on_its_own(patch: Patch) -> None:
    """While a second try waits for the first, a third one is stored."""
    patch.set(_SuspectedRetry, "is_same", lambda _suspect, _messages: False)


@bug("N6x", "that nobody had", 5, "stop", "crash")
def requests_not_in_the_checkpoint(patch: Patch) -> None:
    """The deduplication window is not in the state that a restart begins with."""
    not_in_checkpoints(patch, "requests", RecentRequests)


@bug("N7x", TWICE, 30, world=BURSTS)
def another_key_for_each_try(patch: Patch) -> None:
    """A producer gives a repeated message another unique key."""

    @patch.around(SendDispatcher, "_send")
    def renaming(
        send: Original[None],
        deliverer: SendDispatcher,
        delivery: PendingSend,
        target: Any,
        done: Any,
    ) -> None:
        if delivery.tries and not delivery.count:
            old = delivery.first_key.encode()
            new = b"%b%03X" % (old[:-3], (int(old[-3:], 16) + 2048) % 4096)
            values = [new if value == old else value for value in delivery.values]
            delivery.values, delivery.first_key = tuple(values), new.decode()
        send(deliverer, delivery, target, done)


@bug("N8x", "is acknowledged as", 5, *LOSSES)
def answer_of_a_retry_names_the_next_offset(patch: Patch) -> None:
    """A retry gets the position of the next message as its answer."""

    @patch.around(Deduplicator, "_answer")
    def shifted(
        answer: Original[None],
        requests: Deduplicator,
        suspect: _SuspectedRetry,
        key: bytes,
        first: Any,
    ) -> None:
        end = requests._batcher.end_offset(first.topic, first.queue_id)
        answer(requests, suspect, key, replace(first, queue_offset=end))
