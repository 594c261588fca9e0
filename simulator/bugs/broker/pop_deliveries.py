"""Planted bugs R of POP: deliveries, acknowledgements, message groups and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import broker.pop.receivable_messages
import broker.pop.receiver
from broker.group_commit.pending_batch import Completion
from broker.group_commit.pending_pop import PendingPop, PendingPopQueue
from broker.pop.dead_letters import DeadLetters
from broker.pop.pop import Pop
from broker.pop.pop_request import ReceiptResult, ReceiptStatus
from broker.pop.receipt_handle import ReceiptHandle, parse_handle
from broker.pop.receivable_messages import ReceivableMessages, Search
from broker.pop.receiver import Receiver
from broker.retry.attempts import retries_exhausted
from broker.state.commands import Command, PopAck
from broker.state.pop_queues import PopDelivery, PopKey, PopQueue, PopQueues, pack_runs
from broker.topics_and_groups import GroupConfig
from simulator.bugs.broker.entries_apart import in_two_entries
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import POP

LEADERS = ("crash", "partition", "pause")
bug = BugsOf(POP, seconds=8.0)


@bug("R1x", "which it has acknowledged", 5)
def acknowledgement_forgotten(patch: Patch) -> None:
    """An acknowledgement in the log changes nothing."""
    patch.set(PopQueue, "acknowledge", lambda _queue, _offsets: None)


@bug("R2x", "is answered, and is not in the log", 5)
def acknowledged_before_it_is_committed(patch: Patch) -> None:
    """An acknowledgement is answered when its command is added, not when it is committed."""

    @patch.instead(Pop, "_commit")
    async def hasty(pop: Pop, commands: Sequence[Command]) -> None:
        if commands:
            pop._batcher.add_in_one_entry((), commands)


@bug("R3x", "and the log does not say so", 5)
def given_before_it_is_committed(patch: Patch) -> None:
    """Messages are given out when their command is added, not when it is committed."""
    give = Receiver._give

    @patch.instead(Receiver, "_give")
    def hasty(
        receiver: Receiver,
        attempt: Any,
        key: PopKey,
        pending: PendingPopQueue,
        receivable: ReceivableMessages,
    ) -> Any:
        received, again = give(receiver, attempt, key, pending, receivable)
        if received is not None:
            committed = receiver._loop.create_future()
            committed.set_result(None)
            received.committed.add_done_callback(lambda each: each.cancelled() or each.exception())
            received = received._replace(committed=committed)
        return received, again


@bug("R4x", "with a handle of another delivery", 10)
def any_handle_counts(patch: Patch) -> None:
    """A receipt handle counts as long as its message is not acknowledged."""

    @patch.instead(Pop, "_delivery")
    def trusting(
        pop: Pop, group: str, topic: str, text: str, now_ms: int
    ) -> tuple[ReceiptHandle | None, ReceiptResult]:
        del now_ms
        handle = parse_handle(text, pop._broker_name)
        expired = ReceiptResult(ReceiptStatus.EXPIRED)
        pending = (
            None if handle is None else pop._batcher.pop_queue((group, topic, handle.queue_id))
        )
        if handle is None or pending is None or handle.offset not in pending.queue.deliveries:
            return None, expired
        return handle, expired


@bug("R5x", "before it is visible again", 5)
def visible_too_early(patch: Patch) -> None:
    """A message is received again 200 ms before its invisible time is over."""

    @patch.around(PendingPopQueue, "visible")
    def early(
        visible: Original[Iterator[tuple[int, PopDelivery]]], queue: PendingPopQueue, now_ms: int
    ) -> Iterator[tuple[int, PopDelivery]]:
        return visible(queue, now_ms + 200)


@bug("R6x", "and the log does not say so", 5)
def attempts_not_counted(patch: Patch) -> None:
    """Each delivery is the first of its message."""

    @patch.instead(PopQueue, "receive")
    def forgetful(
        queue: PopQueue, next_offset: int, offsets: Iterable[int], nonce: int, until_ms: int
    ) -> None:
        for offset in offsets:
            known = queue.deliveries.get(offset)
            group_hash = 0 if known is None else known.group_hash
            queue.deliveries[offset] = PopDelivery(until_ms, 1, nonce, group_hash)
        queue.next_offset = max(queue.next_offset, next_offset)


@bug("R7x", "dead letters and deliveries at once", 5)
def dead_letter_and_end_apart(patch: Patch) -> None:
    """A dead letter is stored in one entry, and its delivery ends in the next."""
    in_two_entries(patch, PopAck)


@bug("R8x", "and nobody has acknowledged it", 10)
def exhausted_messages_dropped(patch: Patch) -> None:
    """A message that was received often enough is dropped, and is no dead letter."""

    @patch.instead(DeadLetters, "bury")
    def drop(
        letters: DeadLetters,
        key: PopKey,
        _group: GroupConfig,
        letter: Any,
        done: Completion | None = None,
    ) -> None:
        runs = pack_runs([letter.offset])
        letters._batcher.add_in_one_entry((), [PopAck(*key, runs)], done)


@bug("R9x", "once more than its group tries", 5)
def received_once_too_often(patch: Patch) -> None:
    """A group receives a message once more than its settings say."""
    _count_more(patch, -1)


@bug("R10x", "is a dead letter after 2 attempts", 5)
def given_up_one_attempt_early(patch: Patch) -> None:
    """A message goes to the dead letters one attempt before its last."""
    _count_more(patch, 1)


def _count_more(patch: Patch, more: int) -> None:
    @patch.instead(broker.pop.receivable_messages, "retries_exhausted")
    def exhausted(
        group: GroupConfig, failures: int, times_max: int = -1, delay_level: int = 0
    ) -> bool:
        return retries_exhausted(group, failures + more, times_max, delay_level)


@bug("R11x", "of its message group is done", 5)
def message_groups_ignored(patch: Patch) -> None:
    """In FIFO order a message goes out while an earlier one of its message group is out."""

    @patch.instead(broker.pop.receivable_messages, "_turns")
    def all_of_them(
        search: Search, pending: PendingPopQueue
    ) -> tuple[list[tuple[int, PopDelivery]], set[int], int]:
        found = [
            (offset, delivery)
            for offset, delivery in pending.queue.deliveries.items()
            if delivery.visible_ms <= search.now_ms
        ]
        return found[: search.messages], set(), 0


@bug("R12x", "of its message group is done", 5)
def waiting_messages_forgotten(patch: Patch) -> None:
    """Messages that wait for their message group are passed over."""

    @patch.instead(PopQueue, "wait")
    def careless(queue: PopQueue, next_offset: int, rows: Iterable[tuple[int, int]]) -> None:
        del rows
        queue.next_offset = max(queue.next_offset, next_offset)


@bug("R13x", "before it is visible again", 10)
def changed_time_forgotten(patch: Patch) -> None:
    """A changed invisible time is answered, and the old one goes on."""
    patch.set(PopQueue, "change", lambda _queue, _offset, _nonce, _until_ms: None)


@bug("R14x", "gives up a state | that nobody had | has another state after", 10, "stop", "crash")
def deliveries_not_in_the_checkpoint(patch: Patch) -> None:
    """A restart begins without the deliveries of POP."""
    patch.set(PopQueues, "as_rows", lambda queues: [queues.time_ms, []])


@bug(
    "R15x",
    "not within | is answered, and is not in the log | ends twice | too late | passes",
    60,
    *LEADERS,
)
def pending_deliveries_outlive_their_leader(patch: Patch) -> None:
    """What a leader meant to do is taken for done when it leads again, or was refused."""
    patch.set(PendingPop, "clear", lambda _pop: None)


@bug("R16x", "over", 5)
def one_message_passed_over(patch: Patch) -> None:
    """The cursor moves one message too far with each full receive request."""
    give = Receiver._give

    @patch.instead(Receiver, "_give")
    def far(
        receiver: Receiver,
        attempt: Any,
        key: PopKey,
        pending: PendingPopQueue,
        receivable: ReceivableMessages,
    ) -> Any:
        _first, end = receiver._reader.offsets(*key[1:])
        if receivable.receive and receivable.next_offset < end:
            receivable.next_offset += 1
        return give(receiver, attempt, key, pending, receivable)


@bug("R17x", "timers in second", 5)
def ended_deliveries_stay_due(patch: Patch) -> None:
    """In FIFO order a held request goes on waiting for a delivery that has ended."""

    @patch.instead(PendingPopQueue, "next_visible_ms")
    def stale(queue: PendingPopQueue, now_ms: int) -> int | None:
        del now_ms
        return queue._due[0][0] if queue._due else None
