"""Offsets, for every wire: what groups have consumed, and what queues hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from broker.config.dynamic_settings import DynamicSettings
from broker.delivery.fetch import Delivery
from broker.delivery.first_offset import begins_at_end
from broker.delivery.message_lookup import MessageLookup, NumberDone
from broker.delivery.message_reader import MessageReader
from broker.delivery.offset_quota import check_offset_quota
from broker.delivery.offset_resets import reset_commands
from broker.errors import IllegalOffsetError, Refusal, unknown_topic
from broker.group_commit.batcher import Batcher
from broker.state.commands import Command, CommitOffset
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import check_group_name, check_queue, check_topic_name
from dledger.errors import ProposeError
from dledger.node.linearizable_reads import Done as Confirmed
from dledger.node.linearizable_reads import LinearizableReads
from store.errors import StoreError

OffsetDone: TypeAlias = Callable[[int | None, ProposeError | StoreError | None], None]
"""Called once: with the offset, or None if there is none; or with the error."""


class Offsets:
    """Answers questions about offsets, and commits offsets of groups. Has no state of its own."""

    def __init__(  # noqa: PLR0917 - its parts, each once
        self,
        machine: BrokerStateMachine,
        reader: MessageReader,
        lookup: MessageLookup,
        batcher: Batcher,
        delivery: Delivery,
        settings: DynamicSettings,
        reads: LinearizableReads,
        ensure_group: Callable[[str], None],
        has_members: Callable[[str], bool],
    ) -> None:
        """``ensure_group`` creates a group on its first use. ``has_members`` tells whether a member
        of a group is connected."""
        self._machine = machine
        self._reader = reader
        self._lookup = lookup
        self._batcher = batcher
        self._delivery = delivery
        self._settings = settings
        self._reads = reads
        self._ensure_group = ensure_group
        self._has_members = has_members

    # --- of groups

    def committed(
        self, group: str, topic: str, queue_id: int, done: OffsetDone, *, may_choose: bool
    ) -> None:
        """Calls ``done`` with the group's offset, once it is known to be the newest committed one.

        Without a committed offset the group begins at 0. It gets None if it ``may_choose`` where to
        begin, or if the beginning of the queue has left the memory.
        """

        def confirmed(error: ProposeError | None) -> None:
            if error is None:
                self._tell(group, topic, queue_id, done, may_choose)
            else:
                done(None, error)

        batcher = self._batcher
        known = self._machine.state.offset(group, topic, queue_id)
        if batcher.serving and batcher.offset(group, topic, queue_id) != known:
            # A client that commits one-way and then asks, as Java's do when a queue moves, expects
            # its own commit in the answer.
            try:
                batcher.add_barrier(confirmed)
            except ProposeError as error:
                done(None, error)
        else:
            self.confirm(confirmed)

    def _tell(
        self, group: str, topic: str, queue_id: int, done: OffsetDone, may_choose: bool
    ) -> None:
        offset = self._machine.state.offset(group, topic, queue_id)
        if offset is None and not may_choose:
            replicas = self._delivery.replica_selection
            try:
                offset = None if begins_at_end(self._machine, replicas, topic, queue_id) else 0
            except StoreError as error:
                done(None, error)
                return
        done(offset, None)

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        done: Callable[[Refusal | None], None],
    ) -> None:
        """Commits an offset, and calls ``done`` then. A negative offset means none and has no
        effect (ali-ons sends it). No offset has an effect while an offset reset of the group and
        queue is in progress.

        RocketMQ 5 refuses offsets of unknown topics; like 4.x it takes any offset of a known queue.
        This broker refuses an offset behind the end of the queue: nobody can have consumed more. An
        offset before the first message is valid: messages have expired since.

        Raises one of :data:`~broker.errors.REFUSALS`; ``done`` is not called then.
        """
        batcher, resets = self._batcher, self._delivery.resets
        if offset < 0 or (resets and resets.is_pending(group, topic, queue_id)):
            done(None)
            return
        check_group_name(group)
        check_topic_name(topic)
        batcher.check_serving()
        config = batcher.topic(topic)
        if config is None:
            raise unknown_topic(topic)
        check_queue(config, queue_id)
        end = batcher.end_offset(topic, queue_id)
        if offset > end:
            raise IllegalOffsetError(
                f"the offset {offset} lies behind queue {queue_id} of {topic}, which ends at {end}"
            )
        check_offset_quota(batcher, group, topic, (queue_id,))
        self._ensure_group(group)
        commands: Sequence[Command] = (CommitOffset(group, topic, queue_id, offset),)
        if not self._has_members(group) and self._is_back(group, topic, queue_id, offset):
            commands = reset_commands(batcher, group, topic, queue_id, offset)
        batcher.add_in_one_entry((), commands, done)

    def _is_back(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the offset would move a POP group back. A member's offset may not do that; an
        operator's may, while no member is connected."""
        cursor = self._batcher.pop_queue((group, topic, queue_id))
        return cursor is not None and offset < cursor.queue.committed_offset

    # --- of queues, each as this node has applied it

    def confirm(self, done: Confirmed) -> None:
        """Calls ``done`` once this node has applied everything that was committed before, or at
        once if stale answers will do."""
        if self._settings.config.reads == "stale":
            done(None)
        else:
            self._reads.add(done)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The offset of the queue's oldest message, and the one that its next message will get:
        the same if it is empty. Raises :class:`~broker.errors.UnknownTopicError` and
        :class:`~broker.errors.UnknownQueueError`, as all below."""
        self._check(topic, queue_id)
        return self._reader.offsets(topic, queue_id)

    def earliest_store_time(self, topic: str, queue_id: int, done: NumberDone) -> None:
        """When the queue's oldest message was stored, in ms since 1970; -1 if there is none."""
        first, end = self.bounds(topic, queue_id)
        if first == end:
            done(-1, None)
        else:
            self._lookup.store_time(topic, queue_id, first, done)

    def search(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str, done: NumberDone
    ) -> None:
        """The offset of the message stored at a time; ``boundary`` as in
        :meth:`~broker.delivery.message_lookup.MessageLookup.search_time`."""
        self._check(topic, queue_id)
        self._lookup.search_time(topic, queue_id, timestamp_ms, boundary, done)

    def _check(self, name: str, queue_id: int) -> None:
        topic = self._machine.state.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        check_queue(topic, queue_id)
