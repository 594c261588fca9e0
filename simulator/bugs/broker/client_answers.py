"""Planted bugs D: answers to clients, and derived files."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

import broker.delivery.message_reader
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import (
    Completion,
    NewMessages,
    PendingBatch,
    QueueMessages,
    SendWaiter,
)
from broker.ingest.deduplication import Deduplicator
from broker.maintenance.topic_retention import TopicRetention
from broker.state.commands import Command, EndTransaction
from broker.transactions.coordinator import Ended, TransactionCoordinator
from dledger.errors import ProposeError
from dledger.node.applier import Applier
from dledger.node.linearizable_reads import LinearizableReads
from dledger.node.proposals import Proposals
from simulator.bugs.broker.entries_apart import in_two_entries
from simulator.bugs.broker.lost_state import not_in_checkpoints
from simulator.bugs.planted_bug import SECONDS, BugsOf, Original, Patch
from simulator.bugs.raft.leadership import leader_that_nobody_hears_goes_on
from simulator.bugs.raft.linearizable_reads import STALE, read_confirmed_by_nobody
from simulator.worlds.registry import BROKERS, FOLLOWERS, NODES, RETENTION, TRANSACTIONS
from store.index.block_seals import Tail, extend, unsealed
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.log.entry_index import EntryIndex
from store.message.batch import QUEUE_ROW

GIVEN_UP = "has given up | was delivered to nobody"
bug = BugsOf(BROKERS, seconds=8.0)


@bug("A10b", STALE, 20, "crash", "partition", "pause", world=FOLLOWERS)
def follower_reads_what_it_has(patch: Patch) -> None:
    """A broker answers reads from its applied state, without a read index."""
    patch.set(LinearizableReads, "add", lambda _reads, done: done(None))


@bug("D1", "that nobody had", 20)
def rows_written_after_a_checkpoint_kept(patch: Patch) -> None:
    """Rows of a queue behind the last checkpoint are kept at a start."""

    @patch.around(ConsumeQueue, "restore")
    def trusting(
        restore: Original[None], queue: ConsumeQueue, first_offset: int, tail: Tail
    ) -> None:
        fs, end_offset = queue._files.fs, tail.end
        path = queue._path(max(end_offset - 1, 0))
        if fs.exists(path):
            begin = max(end_offset - 1, 0) // queue.rows_per_file * queue.rows_per_file
            in_file = queue._files.get(path).size() // QUEUE_ROW.size
            end_offset = max(end_offset, begin + in_file)
        more = unsealed(end_offset, queue.rows_per_file)
        restore(queue, first_offset, more if end_offset > tail.end else tail)


@bug("D1b", "are missing", 20, "crash", "stop")
def rows_not_flushed_for_a_checkpoint(patch: Patch) -> None:
    """A checkpoint is saved though the newest rows of the queues are in memory only."""

    @patch.instead(ConsumeQueue, "write_until")
    def forgetful(queue: ConsumeQueue, end: int, *, sync: bool = True) -> Tail:
        """As if the rows were on the disk, synced or not."""
        del sync
        rows = queue._recent[: (end - queue.tail.end) * QUEUE_ROW.size]
        tail, _ = extend(queue.tail, rows, queue.rows_per_file)
        return tail


@bug("D2", "after offset", 10)
def rows_in_another_order_than_the_log(patch: Patch) -> None:
    """Messages of one entry get their offsets in the opposite order."""

    @patch.around(ConsumeQueue, "append")
    def turned(append: Original[None], queue: ConsumeQueue, first_offset: int, rows: Bytes) -> None:
        size = QUEUE_ROW.size
        cut = [bytes(rows[at : at + size]) for at in range(0, len(rows), size)]
        append(queue, first_offset, b"".join(reversed(cut)))

    patch.set(broker.delivery.message_reader, "_corrupt_row", lambda *_: None)


@bug("D3", GIVEN_UP, 20, "expiry")
def one_message_too_many_given_up(patch: Patch) -> None:
    """The minimum offset of each queue goes one too far when messages expire."""

    offset_at = ConsumeQueue.offset_at
    patch.set(ConsumeQueue, "offset_at", lambda queue, position: offset_at(queue, position) + 1)


@bug("D12x", "is not old enough", 20, "expiry", world=RETENTION)
def young_message_given_up_by_its_topic(patch: Patch) -> None:
    """The retention of a topic gives up one message too many."""

    @patch.around(TopicRetention, "_first_from")
    async def beyond(
        first_from: Original[Awaitable[int]],
        retention: TopicRetention,
        queue: ConsumeQueue,
        queue_id: int,
        time_ms: int,
    ) -> int:
        return await first_from(retention, queue, queue_id, time_ms) + 1


@bug("D4", "stops by itself", 100, world=NODES, seconds=SECONDS)
def rows_of_the_entry_index_kept_by_a_cut(patch: Patch) -> None:
    """The entry index keeps the rows of cut entries."""

    @patch.instead(EntryIndex, "truncate")
    def forgetful(index: EntryIndex, first_index: int) -> None:
        with index._lock:
            index.end_index = first_index


@bug("D5", "is stored twice", 40, "crash", "partition")
def retries_taken_for_new_messages(patch: Patch) -> None:
    """Retries of producers are not recognised."""

    @patch.instead(Deduplicator, "add")
    def forgetful(requests: Deduplicator, new: NewMessages, waiter: SendWaiter) -> None:
        requests._batcher.add_messages(new, waiter)


@bug("D6", "is acknowledged as", 20)
def answer_names_another_offset(patch: Patch) -> None:
    """A producer gets the offset that was free when its message came, not the stored one."""
    succeed = PendingBatch.succeed

    @patch.around(Batcher, "_proposed")
    def shifted(
        proposed: Original[None], batcher: Batcher, batch: PendingBatch, error: ProposeError | None
    ) -> None:
        ahead = len(batcher._open.queues) + len(batcher._closed)
        batch.runs = [run._replace(first_offset=run.first_offset + ahead) for run in batch.runs]
        proposed(batcher, batch, error)

    patch.set(PendingBatch, "succeed", succeed)


@bug("D8", "is not linearizable", 60, "crash", "partition")
def command_acknowledged_before_it_is_committed(patch: Patch) -> None:
    """An offset commit or a new topic is acknowledged when it is proposed."""
    add_command, add_in_one_entry = Batcher.add_command, Batcher.add_in_one_entry

    @patch.instead(Batcher, "add_command")
    def eager(batcher: Batcher, command: Command, completion: Completion | None = None) -> None:
        add_command(batcher, command)
        if completion is not None:
            completion(None)

    @patch.instead(Batcher, "add_in_one_entry")
    def eager_in_one_entry(
        batcher: Batcher,
        messages: Sequence[QueueMessages],
        commands: Sequence[Command],
        completion: Completion | None = None,
    ) -> None:
        acknowledged = None if messages else completion
        add_in_one_entry(batcher, messages, commands, None if acknowledged else completion)
        if acknowledged is not None:
            acknowledged(None)


@bug("D9", "only the disks of", 20, world=NODES, seconds=SECONDS)
def entries_applied_before_they_are_committed(patch: Patch) -> None:
    """A node applies received entries before they are committed, and consumers read them."""

    @patch.instead(Applier, "apply")
    def eager(applier: Applier) -> None:
        core = applier._core
        while applier.applied_index < core.entry_cache.last_index:
            entry = core.entry_cache.entry(applier.applied_index + 1)
            if entry is None or not applier._apply_one(entry):
                return


# Only of its peers: clients must reach the leader that nobody hears any more.
@bug("A10", STALE, 20, "partial partition", world=FOLLOWERS)
def reads_by_a_leader_that_nobody_confirmed(patch: Patch) -> None:
    """A leader answers reads at once, as if it had a lease, and goes on although nobody hears
    it."""
    read_confirmed_by_nobody(patch)
    leader_that_nobody_hears_goes_on(patch)


@bug("D10x", "not within", 100, world=NODES, seconds=SECONDS)
def open_proposals_forgotten(patch: Patch) -> None:
    """A client of a deposed leader waits for its answer for ever."""
    patch.set(Proposals, "drop", lambda proposals: proposals._waiting.clear())


@bug("D11x", "that nobody had", 40, "stop", "crash")
def offsets_not_in_the_checkpoint(patch: Patch) -> None:
    """Committed offsets are not in the state that a restart begins with."""
    not_in_checkpoints(patch, "offsets", dict)


@bug("D7", "is published, and was not committed", 10, world=TRANSACTIONS)
def late_end_ends_another_transaction(patch: Patch) -> None:
    """If a transaction has ended, another open one of its producers is ended instead."""
    end = TransactionCoordinator.end

    @patch.instead(TransactionCoordinator, "end")
    def careless(
        service: TransactionCoordinator,
        offset: int,
        position: int,
        group: str,
        message_id: str,
        *,
        commit: bool,
        ended: Ended,
        **others: Any,
    ) -> None:
        opened = service._machine.state.transactions
        for other, transaction in opened.items():
            if offset not in opened:
                offset, position, message_id = other, transaction.position, ""
        end(service, offset, position, group, message_id, commit=commit, ended=ended, **others)


@bug("D7b", "and again by", 40, "crash", "partition", "pause", world=TRANSACTIONS)
def outcome_and_publication_apart(patch: Patch) -> None:
    """A committed message and the end of its transaction are two entries."""
    in_two_entries(patch, EndTransaction)
