"""Messages that consumers send back: each is stored again for the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.delivery.message_lookup import MessageLookup
from broker.errors import REFUSALS, AccessDeniedError, Refusal, RefusedError
from broker.group_commit.batcher import Batcher
from broker.metrics.topic_metrics import TopicMetrics
from broker.retry.attempts import attempts_sent_back, retries_exhausted
from broker.retry.retry_and_dead_letter import (
    dead_letter_of,
    missing_retry_topics,
    retry_message,
    retrying_group,
)
from broker.scheduled.republisher import check_republished_size, republished
from broker.topics_and_groups import GroupConfig, retry_topic
from dledger.errors import ProposeError
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.message.record import MessageRecord, decode_record
from store.message.scheduled_topics import SCHEDULED_TOPICS


class SendBack:
    """Takes messages that are sent back, on the leader (RocketMQ's ``CONSUMER_SEND_MSG_BACK``)."""

    def __init__(
        self,
        *,
        batcher: Batcher,
        lookup: MessageLookup,
        topic_metrics: TopicMetrics,
        wall_clock: Callable[[], int],
        rng: Random,
    ) -> None:
        """``wall_clock`` gives milliseconds since 1970."""
        self._batcher = batcher
        self._lookup = lookup
        self._topic_metrics = topic_metrics
        self._wall_clock = wall_clock
        self._rng = rng

    def send_back(
        self,
        position: int,
        group_name: str,
        delay_level: int,
        times_max: int,
        done: Callable[[Refusal | None], None],
        *,
        told_topic: str = "",
    ) -> None:
        """Stores a copy of the message at ``position`` for the group's next attempt, or as a dead
        letter.

        ``delay_level``: 0: the broker chooses the delay; below 0: the message becomes a dead
        letter. ``times_max``: the allowed attempts; below 0: as the group says. ``told_topic``: if
        not empty, a message that is neither of that topic nor a retry of the group is refused.
        ``done`` is called once: with None when the copy is committed.

        Raises :class:`~dledger.errors.NotLeaderError` and
        :class:`~broker.errors.UnknownGroupError`; ``done`` is not called then.
        """
        batcher = self._batcher
        batcher.check_serving()
        retrying_group(group_name, batcher.group)

        def found(data: Bytes, error: StoreError | None) -> None:
            try:
                if error is not None:
                    raise error
                record = decode_record(data)
                if told_topic and record.topic not in {told_topic, retry_topic(group_name)}:
                    raise AccessDeniedError(
                        f"the message at {position} is not of the topic {told_topic}"
                    )
                group = retrying_group(group_name, batcher.group)  # deleted or changed since?
                self._store_copy(record, group, delay_level, times_max, done)
            except REFUSALS as refusal:
                done(refusal)
            except StoreError as fault:
                unread = RefusedError(f"look message by offset failed, {position}: {fault.told}")
                unread.__cause__ = fault
                done(unread)

        self._lookup.record(position, found)

    def _store_copy(
        self,
        record: MessageRecord,
        group: GroupConfig,
        delay_level: int,
        times_max: int,
        done: Callable[[Refusal | None], None],
    ) -> None:
        batcher = self._batcher
        popped = batcher.pop_queue((group.name, record.topic, record.queue_id))
        failures = attempts_sent_back(
            record.reconsume_times,
            None if popped is None else popped.queue.deliveries.get(record.queue_offset),
            batcher.now_ms(),
        )
        if retries_exhausted(group, failures, times_max, delay_level):
            topic, place = dead_letter_of(record, group)
        else:
            topic, place = retry_message(record, group, failures, delay_level, self._rng)
        commands = missing_retry_topics(group, topic, batcher.topic, self._wall_clock())
        copy = republished(
            record,
            place.topic,
            place.queue_id,
            place.properties,
            reconsume_times=failures,
        )
        if place.topic in SCHEDULED_TOPICS:
            check_republished_size(copy.messages[0], batcher.request_bytes_max)

        def stored(error: ProposeError | None) -> None:
            if error is None:
                self._topic_metrics.returned(record.topic, group.name, record.size)
            done(error)

        batcher.add_in_one_entry([copy], commands, stored)
