"""Dead letters of POP: messages that a group has received too often, or gives up.

The dead letter and the command that ends the delivery are in one entry. So the message is always in
exactly one place.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import Completion
from broker.pop.receivable_messages import Candidate
from broker.retry.retry_and_dead_letter import dead_letter_of, missing_retry_topics
from broker.scheduled.republisher import republished
from broker.state.commands import PopAck
from broker.state.pop_queues import PopKey, pack_runs
from broker.topics_and_groups import GroupConfig
from store.message.record import decode_record


class DeadLetters:
    """Stores dead letters, on the leader."""

    def __init__(self, *, batcher: Batcher, wall_clock: Callable[[], int]) -> None:
        self._batcher = batcher
        self._wall_clock = wall_clock

    def bury(
        self, key: PopKey, group: GroupConfig, letter: Candidate, done: Completion | None = None
    ) -> None:
        """Ends the delivery of a message, and stores it as a dead letter.

        Raises one of :data:`~broker.errors.REFUSALS` or :class:`~store.errors.CorruptRecordError`;
        nothing changes then.
        """
        message = decode_record(letter.record)
        topic, place = dead_letter_of(message, group)
        commands = missing_retry_topics(group, topic, self._batcher.topic, self._wall_clock())
        copy = republished(
            message, place.topic, place.queue_id, place.properties, reconsume_times=letter.attempts
        )
        ends = PopAck(*key, pack_runs([letter.offset]))
        self._batcher.add_in_one_entry([copy], [*commands, ends], done)
