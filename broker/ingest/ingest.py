"""The door through which messages come in, from every wire.

``submit`` takes one message, ``submit_batch`` several. Both check the limits, find the topic or
create it, choose the queue, and store the message where it belongs:

- now, in its own queue;
- later, in the topic of delay levels or on the timer wheel (:mod:`broker.scheduled`);
- as a half message, until its transaction ends (:mod:`broker.transactions`);
- as a dead letter, if a consumer sends it back too often (:mod:`broker.retry`).

A request that may be a retry is looked up first (:mod:`broker.ingest.deduplication`). ``send_back``
takes messages that a consumer could not consume. A refusal is an error: it is raised, or given to
the waiter later. The wires make their answers of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from zlib import crc32

from broker.config.node_config import NodeConfig
from broker.delivery.message_lookup import MessageLookup
from broker.delivery.message_reader import MessageReader
from broker.errors import (
    REFUSALS,
    BodyTooLargeError,
    ForbiddenError,
    IllegalMessageError,
)
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import NewMessages
from broker.ingest.auto_create import AutoCreateSettings, AutoCreator
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.deduplication import Deduplicator
from broker.ingest.held_answer import HeldAnswer
from broker.ingest.message_properties import (
    NeedsRoutingError,
    check_keys,
    checked_properties,
    is_half_message,
    storable_in_batch,
)
from broker.ingest.message_types import check_message_type
from broker.ingest.property_templates import MessageBuilder, origin
from broker.ingest.send_request import Sender, SendOptions, SendRequest
from broker.limits import STATE
from broker.metrics.topic_metrics import TopicMetrics
from broker.quotas.throttle import Throttle
from broker.retry.retry_and_dead_letter import (
    dead_letter,
    group_that_gives_up,
    missing_retry_topics,
)
from broker.retry.send_back import SendBack
from broker.scheduled.placement import Placement, deliver_time, scheduled_placement
from broker.scheduled.recall_handle import handle_for
from broker.scheduled.republisher import REPUBLISHED_TOPICS, check_republished_size
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.state.commands import PutTopic
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import (
    DLQ_PREFIX,
    HALF_TOPIC,
    MESSAGE_TYPE_MASK,
    PERM_WRITE,
    RETRY_PREFIX,
    TopicConfig,
    check_queue,
)
from broker.transactions.half_message import half_message_placement
from broker.transactions.pending_half_messages import PendingHalfMessages
from dledger.errors import BusyError
from store.io.filesystem import Bytes
from store.message.record import make_pending_message, tag_and_keys


class Ingest:
    """Takes messages in, on the leader."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        settings: AutoCreateSettings,
        store_host: bytes,
        batcher: Batcher,
        machine: BrokerStateMachine,
        reader: MessageReader,
        lookup: MessageLookup,
        scheduled_messages: ScheduledMessageService,
        topic_metrics: TopicMetrics,
        wall_clock: Callable[[], int],
        rng: Random,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``wall_clock`` gives milliseconds; ``store_host`` is 4 bytes of IPv4 and an i32 port."""
        self.quotas: Throttle | None = None
        """None without quotas."""
        self._loop = loop
        self._batcher = batcher
        self._machine = machine
        self._scheduled_messages = scheduled_messages
        self._pending_half_messages = PendingHalfMessages()
        self._wall_clock = wall_clock
        self._rng = rng
        self._broker_name = config.group
        self._body_size_max = config.max_message_size
        self._message_builder = MessageBuilder(config.cluster)
        self._batch_message_builder = MessageBuilder(config.cluster, storable_in_batch)
        self._deduplication_index = batcher.deduplication_index
        self.deduplicator = Deduplicator(
            batcher,
            machine,
            reader,
            wall_clock=wall_clock,
            window_ms=config.dedup_window_seconds * 1000,
            store_host=store_host,
        )
        self.auto_creator = AutoCreator(batcher, settings, wall_clock)
        self.send_back = SendBack(
            batcher=batcher,
            lookup=lookup,
            topic_metrics=topic_metrics,
            wall_clock=wall_clock,
            rng=rng,
        ).send_back

    def submit(self, request: SendRequest, body: Bytes, born_host: bytes, waiter: Sender) -> float:
        """Takes one message; ``born_host`` is its producer's address: 4 bytes of IPv4 and an i32
        port.

        Returns the seconds for which the wire should read nothing more from this client, above 0 if
        the client is beyond a quota. The answer is held back too, for a shorter time.

        Raises :class:`~broker.errors.RefusedError` if it is not allowed,
        :class:`~dledger.errors.ProposeError` if it is impossible now, and
        :class:`~store.errors.EntryTooLargeError`. The waiter is not called then.
        """
        topic, queue_id, sys_flag, born_timestamp, flag, reconsume_times, properties, options = (
            request
        )
        if self.quotas is not None and not isinstance(waiter, HeldAnswer):
            held = HeldAnswer(waiter, self._loop)
            Ingest.submit(self, request, body, born_host, held)  # a refused message costs no quota
            debt = self.quotas.produced(waiter.caller(), topic, 1, len(body))
            held.hold(debt)
            return debt
        batcher = self._batcher
        # Each call here is a hundredth of what a single message costs: only what is rare is called.
        if not batcher.serving or len(body) > self._body_size_max:
            self.check_body(body)
        config = batcher.topic(topic)
        creates: Sequence[PutTopic] = ()
        if config is None or not config.perm & PERM_WRITE:
            config, creates = self._topic(topic, options)
        if config.sys_flag & MESSAGE_TYPE_MASK:
            check_message_type(config, properties)
        if not 0 <= queue_id < config.write_queues:
            queue_id = self._queue_id(config, queue_id, options)
        waiter.queue_id = queue_id
        if topic.startswith(RETRY_PREFIX):
            self._submit_routed(request, queue_id, body, born_host, waiter, creates=creates)
            return 0.0
        try:
            message = self._message_builder.build(
                origin(topic, sys_flag, born_timestamp, born_host, reconsume_times),
                flag,
                body,
                properties,
            )
        except NeedsRoutingError:
            self._submit_routed(request, queue_id, body, born_host, waiter, creates=creates)
            return 0.0
        hashes = message.key_hashes
        known = self._deduplication_index
        # Few messages are retries: this check saves the others a call.
        if creates or (hashes and (hashes[0] in known.newer or hashes[0] in known.older)):
            self.deduplicator.add(NewMessages(topic, queue_id, (message,), creates), waiter)
        else:
            batcher.add_message(topic, queue_id, message, waiter)
        return 0.0

    def submit_batch(
        self, request: SendRequest, body: bytes, born_host: bytes, waiter: Sender
    ) -> float:
        """Takes the messages of a batch (:mod:`broker.ingest.batch_body`), all or none. Returns and
        raises as :meth:`submit`."""
        topic, queue_id, sys_flag, born_timestamp, _, reconsume_times, properties, options = request
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise IllegalMessageError(f"a batch may not go to the topic {topic}")
        self.check_body(body)
        config, creates = self._topic(topic, options)
        queue_id = waiter.queue_id = self._queue_id(config, queue_id, options)
        of = origin(topic, sys_flag, born_timestamp, born_host, reconsume_times)
        try:
            messages = decode_batch_body(self._batch_message_builder, of, body, properties)
        except NeedsRoutingError:
            raise IllegalMessageError(
                "a message of a batch may neither wait nor belong to a transaction"
            ) from None
        if not messages:
            raise IllegalMessageError("the batch has no message")
        if config.sys_flag & MESSAGE_TYPE_MASK:
            for message in messages:
                check_message_type(config, message.properties)
        new = NewMessages(topic, queue_id, messages, creates)
        if self.quotas is None:
            self.deduplicator.add(new, waiter)
            return 0.0
        held = HeldAnswer(waiter, self._loop)
        self.deduplicator.add(new, held)
        debt = self.quotas.produced(waiter.caller(), topic, len(messages), len(body))
        held.hold(debt)
        return debt

    def check_body(self, body: Bytes) -> None:
        """Raises :class:`~dledger.errors.NotLeaderError`, which comes before all other refusals,
        and :class:`~broker.errors.BodyTooLargeError`."""
        batcher = self._batcher
        if not batcher.serving:
            batcher.check_serving()
        if len(body) > self._body_size_max:
            raise BodyTooLargeError(len(body), self._body_size_max)

    def _topic(self, name: str, options: SendOptions) -> tuple[TopicConfig, Sequence[PutTopic]]:
        """The topic of a message, and the commands that create it if it is missing and may be
        created."""
        config = self._batcher.topic(name)
        creates: Sequence[PutTopic] = ()
        if config is None:
            config, creates = self.auto_creator.new_topic(
                name, options.default_topic, options.default_queues
            )
        if not config.writable:
            raise ForbiddenError(f"the topic {name} is not writable")
        return config, creates

    def _queue_id(self, config: TopicConfig, queue_id: int, options: SendOptions) -> int:
        """The requested queue; below 0: the queue of the message group, or a random one."""
        if 0 <= queue_id < config.write_queues:
            return queue_id
        if queue_id < 0:
            if options.message_group:
                return crc32(options.message_group) % config.write_queues
            return self._rng.randrange(config.write_queues)
        check_queue(config, queue_id)
        return queue_id

    # --- the rare path: messages for later delivery

    def _submit_routed(
        self,
        request: SendRequest,
        queue_id: int,
        body: Bytes,
        born_host: bytes,
        waiter: Sender,
        *,
        creates: Sequence[PutTopic],
    ) -> None:
        batcher = self._batcher
        properties = self._message_builder.with_cluster(checked_properties(request.properties))
        check_keys(tag_and_keys(properties)[1], len(properties))
        now_ms = self._scheduled_messages.now_ms()
        group = group_that_gives_up(
            request.topic, request.reconsume_times, request.options.times_max, batcher.group
        )
        if is_half_message(properties):
            place = self._half_message_placement(request.topic, queue_id, properties, now_ms)
        elif group is None:
            place = scheduled_placement(
                request.topic, queue_id, properties, now_ms, self.deduplicator.knows_timed
            )
        else:
            topic, place = dead_letter(group, properties)
            missing = missing_retry_topics(group, topic, batcher.topic, self._wall_clock())
            creates = (*creates, *missing)
        message = make_pending_message(
            place.topic,
            body,
            place.properties,
            flag=request.flag,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=born_host,
            reconsume_times=request.reconsume_times,
        )
        if place.topic in REPUBLISHED_TOPICS:
            check_republished_size(message, batcher.request_bytes_max)
        if place.deliver_ms is not None:
            message = message._replace(tags_code=place.deliver_ms)
            if not request.topic.startswith(RETRY_PREFIX):
                asked_ms = deliver_time(properties, now_ms)
                waiter.recall_handle = handle_for(
                    request.topic, self._broker_name, asked_ms, properties
                )
        new = NewMessages(place.topic, place.queue_id, (message,), creates)
        self._add(place, new, now_ms, waiter)

    def _half_message_placement(
        self, topic: str, queue_id: int, properties: bytes, now_ms: int
    ) -> Placement:
        opened = len(self._machine.state.transactions) + self._pending_half_messages.count
        if opened >= STATE.transactions_max:
            raise BusyError(opened, STATE.transactions_max, "transactions are open")
        return half_message_placement(topic, queue_id, properties, now_ms)

    def _add(self, place: Placement, new: NewMessages, now_ms: int, waiter: Sender) -> None:
        if place.topic == HALF_TOPIC:
            settling = self._pending_half_messages.counted(waiter)
        elif place.deliver_ms is not None:
            settling = self._scheduled_messages.tracked(place.deliver_ms, now_ms, waiter)
        else:
            self.deduplicator.add(new, waiter)
            return
        try:
            self.deduplicator.add(new, settling)
        except REFUSALS:
            settling.settled()
            raise
