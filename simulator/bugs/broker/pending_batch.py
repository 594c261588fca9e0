"""Planted bugs N of a leader's pending messages: offsets, terms, answers."""

from __future__ import annotations

from typing import Any

from broker.group_commit import batcher as group_commit
from broker.group_commit.batcher import Batcher
from broker.group_commit.next_offsets import NextOffsets
from broker.group_commit.pending_batch import PendingBatch
from broker.group_commit.store_clock import StoreClock
from broker.remoting.connection import Connection
from broker.remoting.processors.consumer_offsets import OffsetProcessor
from broker.remoting.processors.send_message import _Answer
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state.broker_state import BrokerState
from broker.state.commands import Command, PutTopic
from dledger.errors import ProposeError
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS, BURSTS, LOOKUPS
from store.message.batch import QueueRun

TWICE = "is stored twice"
LINEAR = "is not linearizable"
LEADERS = ("partition", "pause", "crash")
bug = BugsOf(BROKERS, seconds=8.0)


@bug("N10x", "do not follow", 5, "partition", "pause")
def offsets_of_another_term_go_on(patch: Patch) -> None:
    """A leader continues with the queue offsets of its earlier term."""
    patch.set(NextOffsets, "clear", lambda _offsets: None)


@bug("N11x", "do not follow", 30)
def offsets_of_refused_messages_kept(patch: Patch) -> None:
    """Offsets of failed proposals are not used again."""
    patch.set(NextOffsets, "give_back", lambda _offsets, _runs: None)


@bug("N12x", "do not follow", 10, world=BURSTS)
def offsets_from_the_applied_state_alone(patch: Patch) -> None:
    """Offsets go on from the applied state, without messages in progress."""

    @patch.around(NextOffsets, "runs_of")
    def forget(runs_of: Original[list[QueueRun]], offsets: NextOffsets, *of: Any) -> list[QueueRun]:
        runs = runs_of(offsets, *of)
        offsets.clear()
        return runs


@bug("N13x", TWICE, 5, "partition", "pause")
def pending_messages_survive_their_term(patch: Patch) -> None:
    """A message that is pending as another term begins is proposed in it, or never."""

    @patch.around(Batcher, "_refuse_pending")
    def keep(refuse: Original[None], batcher: Batcher, error: ProposeError) -> None:
        if batcher.serving:
            refuse(batcher, error)


@bug("N14x", "nobody applied it", 5)
def message_acknowledged_before_it_is_committed(patch: Patch) -> None:
    """A message is acknowledged when its entry is proposed."""

    @patch.around(Batcher, "_propose")
    def eager(propose: Original[None], batcher: Batcher, batch: PendingBatch) -> None:
        propose(batcher, batch)
        if batch in batcher._in_flight:
            batch.succeed()
            for queue in batch.queues.values():
                queue.waiters.clear()
            batch.completions.clear()


@bug("N15x", "is acknowledged as", 10, *LEADERS)
def refusal_answered_as_success(patch: Patch) -> None:
    """A refused message is acknowledged."""

    @patch.instead(_Answer, "failed")
    def failed(answer: _Answer, _error: ProposeError) -> None:
        answer.stored(0, (0,))


@bug("N17x", LINEAR, 5, *LEADERS)
def unknown_offset_answered_as_none(patch: Patch) -> None:
    """A read of an offset that cannot be known now is answered with "none"."""

    @patch.around(OffsetProcessor, "query_consumer_offset")
    def hasty(
        query: Original[None], processor: OffsetProcessor, connection: Connection, request: Frame
    ) -> None:
        if processor._batcher.serving:
            query(processor, connection, request)
        else:
            connection.respond(request, ResponseCode.QUERY_NOT_FOUND, "there is none")


@bug("N18x", "not within | as version of the topics", 10, "client pause")
def topic_forgotten_by_the_version(patch: Patch) -> None:
    """A new topic does not change the version of the topic table."""

    @patch.around(BrokerState, "apply")
    def quiet(apply: Original[None], state: BrokerState, command: Command) -> None:
        version = state.topics_version
        apply(state, command)
        if isinstance(command, PutTopic) and version.counter:
            state.topics_version = version


@bug("N19x", "leaves out", 10, "clock jump", "crash", world=LOOKUPS)
def time_of_records_goes_back(patch: Patch) -> None:
    """Records get the time of the machine's clock, even if it was set back."""
    patch.set(StoreClock, "now_ms", lambda clock: clock._wall_clock())


@bug("N57x", "deletes a topic and has messages", 40, seconds=20.0, world=BURSTS)
def deletion_of_a_topic_beside_messages(patch: Patch) -> None:
    """The command that deletes a topic shares an entry with messages, and is applied after all of
    them."""
    patch.set(group_commit, "DeleteTopic", type(None))
