"""Planted bugs H: offsets, delivery and retries of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import broker.delivery.message_filter
import broker.filter.subscription
import broker.retry.retry_and_dead_letter
import broker.retry.send_back
from broker.delivery.long_polling import LongPolling
from broker.delivery.message_reader import GetMessageResult, MessageReader
from broker.delivery.offset_resets import OffsetReset, PendingResets
from broker.delivery.queue_locks import LockedQueue, QueueLocks
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import Completion, QueueMessages
from broker.remoting.connection import Connection
from broker.remoting.processors.consumer_send_back import SendBackProcessor
from broker.remoting.processors.pull_message import PullMessageProcessor
from broker.remoting.processors.reset_offset import ResetProcessor
from broker.remoting.protocol.frame import Frame
from broker.retry.attempts import retries_exhausted
from broker.scheduled.republisher import republished
from broker.state.broker_state import BrokerState
from broker.state.commands import Command, CommitOffset
from broker.topics_and_groups import GroupConfig
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS, PUSHING
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes

bug = BugsOf(PUSHING, seconds=8.0)


@bug("H1x", "is not linearizable | as consumer offsets of the broker", 5, world=BROKERS)
def highest_offset_kept(patch: Patch) -> None:
    """A committed offset counts only if it is beyond the one before."""

    @patch.around(BrokerState, "apply")
    def rising(apply: Original[None], state: BrokerState, command: Command) -> None:
        if isinstance(command, CommitOffset):
            before = state.offset(command.group, command.topic, command.queue_id)
            command = command._replace(offset=max(command.offset, before or 0))
        apply(state, command)


@bug("H2x", "was delivered to nobody", 5)
def pull_commits_where_it_pulls(patch: Patch) -> None:
    """A pull commits the offset from which it pulls, not the one that it names."""

    @patch.around(PullMessageProcessor, "pull")
    def careless(
        pull: Original[None],
        processor: PullMessageProcessor,
        connection: Connection,
        request: Frame,
    ) -> None:
        if request.ext is not None and "commitOffset" in request.ext:
            request.ext["commitOffset"] = request.ext["queueOffset"]
        pull(processor, connection, request)


@bug("H3x", "which it filters", 5)
def every_tag_passes(patch: Patch) -> None:
    """A consumer that filters by tags gets all messages."""
    patch.set(broker.delivery.message_filter, "tag_codes", lambda _expression: None)


@bug("H4x", "was delivered to nobody", 5)
def first_tag_alone_passes(patch: Patch) -> None:
    """Only the first of several tags is selected."""
    codes = broker.filter.subscription.tag_codes

    @patch.instead(broker.delivery.message_filter, "tag_codes")
    def first(expression: str) -> frozenset[int] | None:
        return codes(expression.partition("||")[0])


@bug("H5x", "is to be tried again 0 times", 5)
def attempts_not_counted(patch: Patch) -> None:
    """A message that is sent back comes again as if it had never failed."""

    @patch.instead(broker.retry.send_back, "republished")
    def uncounted(*given: Any, reconsume_times: int = 0, **named: Any) -> QueueMessages:
        return republished(*given, reconsume_times=max(reconsume_times - 1, 0), **named)


@bug("H6x", "is to be tried again 3 times", 5)
def one_attempt_too_many(patch: Patch) -> None:
    """A message becomes a dead letter one attempt too late."""

    @patch.instead(broker.retry.send_back, "retries_exhausted")
    def later(group: GroupConfig, failures: int, times_max: int = -1, delay_level: int = 0) -> bool:
        return retries_exhausted(group, failures - 1, times_max, delay_level)


@bug("H7x", "nobody stored it", 5)
def dead_letters_dropped(patch: Patch) -> None:
    """A dead letter is thrown away, and the answer says that it is stored."""

    @patch.around(Batcher, "add_in_one_entry")
    def careless(
        together: Original[None],
        batcher: Batcher,
        messages: Any,
        commands: Any,
        completion: Completion | None = None,
    ) -> None:
        if completion is not None and any(to.topic.startswith("%DLQ%") for to in messages):
            completion(None)
        else:
            together(batcher, messages, commands, completion)


@bug("H8x", "nobody stored it", 5)
def returned_message_acknowledged_at_once(patch: Patch) -> None:
    """A message that is sent back is acknowledged before its next attempt is stored."""

    @patch.around(SendBackProcessor, "send_back")
    def eager(
        send_back: Original[None],
        processor: SendBackProcessor,
        connection: Connection,
        request: Frame,
    ) -> None:
        send_back(processor, connection, request)
        connection.respond(request)


@bug("H12x", "was delivered to nobody", 5)
def first_message_over_the_bytes_passed_over(patch: Patch) -> None:
    """A pull that reaches its limit of bytes skips the message that does not fit."""

    @patch.around(MessageReader, "_scan")
    def hasty(
        scan: Original[GetMessageResult], reader: MessageReader, queue: ConsumeQueue, *given: Any
    ) -> GetMessageResult:
        found, limits = scan(reader, queue, *given), given[2]
        full = found.messages < limits.messages and found.next_offset < queue.end_offset
        return found._replace(next_offset=found.next_offset + full)


@bug("H13x", "though its pull was held there", 5)
def held_pulls_not_woken(patch: Patch) -> None:
    """A held pull is answered at its deadline only, even if a message arrives."""

    @patch.instead(LongPolling, "arrived")
    def deaf(_holds: LongPolling, _topic: str, _queue_id: int, _new_rows: Bytes) -> None:
        """Nobody is woken."""


@bug("H9x", "holds it | at once", 20, "client crash", "crash")
def lock_for_every_client(patch: Patch) -> None:
    """A locked queue is granted to the next client that asks."""

    @patch.instead(QueueLocks, "lock")
    def generous(
        _locks: QueueLocks, _group: str, _client_id: str, queues: Iterable[LockedQueue]
    ) -> list[LockedQueue]:
        return list(queues)


@bug("H10x", "was delivered to nobody", 20, "client pause")
def group_moved_forward_unforced(patch: Patch) -> None:
    """A group is moved beyond its consumed messages without force."""

    @patch.around(OffsetReset, "_commit")
    def forced(commit: Original[None], reset: OffsetReset, *, force: bool) -> None:  # noqa: ARG001 - as what it replaces
        commit(reset, force=True)


@bug("H11x", "is given all again: not within", 5)
def moved_group_not_notified(patch: Patch) -> None:
    """A group is moved back, but its members are not notified, and the leader forgets it."""

    @patch.instead(PendingResets, "add")
    def forgetful(
        resets: PendingResets, _group: str, _topic: str, _queue_id: int, _offset: int
    ) -> None:
        resets.clear()

    patch.set(ResetProcessor, "_tell_members", lambda *_: None)
