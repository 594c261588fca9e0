"""Planted bugs J: protection from bad links, damage at rest, and death right after an answer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from crc32c import crc32c

import broker.state.state_machine
import dledger.wire.codec
import store.state.checkpoint
from broker.delivery.fetch import Delivery, Fetch
from broker.delivery.message_reader import GetMessageResult, GetMessageStatus
from broker.delivery.offsets import OffsetDone, Offsets
from broker.maintenance.key_files_check import KeyFilesCheck
from broker.maintenance.queue_blocks_check import QueueBlocksCheck
from broker.nameserver.registration_checks import (
    EarlierConnectionError,
    RegistrationChecks,
    StaleTermError,
)
from broker.state.queue_expiry import LogSearch, first_offsets
from broker.state.state_machine import BrokerStateMachine
from dledger.raft.read_index import LeaderReads, ReadAsked
from dledger.wire.codec import CRC
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.bugs.raft.linearizable_reads import STALE
from simulator.worlds.registry import BROKERS, NODES
from store.index.block_seals import UNKNOWN
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.replica import ReplicaStore
from store.replica_reads import ReplicaReads
from store.state.checkpoint import Checkpoint, decode_checkpoint

CRC_AT = 8
"""The byte of a checkpoint's CRC, which covers all that follows."""


bug = BugsOf(BROKERS, seconds=8.0)


@bug("J1x", "bits have flipped", 5, "bits flipped on a link", world=NODES, seconds=6.0)
def frames_believed(patch: Patch) -> None:
    """Nobody compares the CRC of a frame between peers."""
    patch.set(dledger.wire.codec, "unseal", lambda frame: memoryview(frame)[CRC.size :])


@bug("J2x", STALE, 20, "leader dies unheard", seconds=12.0)
def reads_before_the_first_entry_of_a_term(patch: Patch) -> None:
    """A new leader answers reads from its known commit index, before its first entry is
    committed."""

    @patch.instead(LeaderReads, "ask")
    def early(reads: LeaderReads, asker: str, number: int, now: float) -> None:
        if reads._rounds.add(ReadAsked(asker, number, reads._raft_log.commit_index)):
            reads._begin_round(now)


def _without(patch: Patch, ignored: type[Exception]) -> None:
    @patch.around(RegistrationChecks, "_refuse")
    def lenient(
        refuse: Original[None],
        claims: RegistrationChecks,
        claim: Hashable,
        channel: int,
        refusal: Exception,
    ) -> None:
        if not isinstance(refusal, ignored):
            refuse(claims, claim, channel, refusal)


@bug("J3x", "has registered as that of term", 10, "registration late")
def late_leader_registered(patch: Patch) -> None:
    """A NameServer takes the last registered leader, even one of an earlier term."""
    _without(patch, StaleTermError)


@bug("J4x", "registered over a later one", 20, "registration late")
def late_connection_registered(patch: Patch) -> None:
    """A NameServer accepts a late registration of an earlier process over the next one's."""
    _without(patch, EarlierConnectionError)


@bug("J5x", "was delivered to nobody", 20, "dies with what was given")
def handed_out_is_consumed(patch: Patch) -> None:
    """A query for a group's offset returns the end of what it was given."""
    given: dict[tuple[BrokerStateMachine, str, str, int], int] = {}
    tell = Offsets._tell

    @patch.around(Delivery, "_answer")
    def noting(
        answer: Original[None],
        delivery: Delivery,
        fetch: Fetch,
        found: GetMessageResult,
        parts: Sequence[Bytes] = (),
    ) -> None:
        of = fetch.request
        if found.status is GetMessageStatus.FOUND:
            given[delivery._machine, of.group, of.topic, of.queue_id] = found.next_offset
        answer(delivery, fetch, found, parts)

    @patch.instead(Offsets, "_tell")
    def telling(  # noqa: PLR0917 - as what it replaces
        offsets: Offsets,
        group: str,
        topic: str,
        queue_id: int,
        done: OffsetDone,
        may_choose: bool,
    ) -> None:
        known = given.get((offsets._machine, group, topic, queue_id))
        if known is None:
            tell(offsets, group, topic, queue_id, done, may_choose)
        else:
            done(known, None)


@bug("J6x", "is not as its log says", 40, "key index damaged")
def missing_key_files_not_missed(patch: Patch) -> None:
    """A start takes the present files of the key index for all of them."""

    @patch.instead(KeyFilesCheck, "_add_gap")
    def blind(*_given: object) -> None:
        """As if each row had its file."""


@bug("J7x", "has another state", 60, "ConsumeQueue damaged", "expiry", "crash")
def corrupt_rows_decide_where_queues_begin(patch: Patch) -> None:
    """When the log expires, rows of ConsumeQueues are believed without a look at seals or log."""

    @patch.instead(broker.state.state_machine, "first_offsets")
    def believing(
        queues: Iterable[ConsumeQueue],
        position: int,
        _log: ReplicaReads | None,
        searches: dict[int, LogSearch],
    ) -> list[tuple[ConsumeQueue, int]]:
        return first_offsets(queues, position, None, searches)

    patch.set(ConsumeQueue, "crc_of", lambda _queue, _begin, _stop: UNKNOWN)
    patch.set(ConsumeQueue, "_check_unsealed", lambda _queue, _first, _rows: None)


@bug("J8x", "that nobody had", 40, "checkpoint damaged")
def corrupt_checkpoint_taken_for_the_newest(patch: Patch) -> None:
    """A checkpoint is read without comparing its CRC."""

    @patch.instead(store.state.checkpoint, "decode_checkpoint")
    def believing(data: bytes, path: str) -> Checkpoint:
        crc = crc32c(data[CRC_AT + 4 :]).to_bytes(4, "big")
        return decode_checkpoint(data[:CRC_AT] + crc + data[CRC_AT + 4 :], path)


@bug(
    "J9x", "damage is repaired: not within | entry-index:", 100, "entry index damaged", "partition"
)
def wrong_rows_of_the_entry_index_left(patch: Patch) -> None:
    """The scrub does not repair rows of the entry index."""
    patch.set(ReplicaStore, "repair_index", lambda _store: [])


@bug("J10x", "is not as its log says", 40, "ConsumeQueue damaged")
def corrupt_rows_of_queues_not_looked_for(patch: Patch) -> None:
    """The scrub does not compare ConsumeQueues with the log."""
    patch.set(QueueBlocksCheck, "take", lambda _check, _batch: [])
