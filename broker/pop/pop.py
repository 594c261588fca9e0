"""POP, for every wire: receives messages, acknowledges and changes deliveries.

A member of a group receives messages from any queue. They are invisible to the rest of the group
for a time. A message that is not acknowledged in that time is received again, and becomes a dead
letter after the group's last attempt. All changes are commands in the log, and every answer comes
after its command is committed. Only the leader decides, by the pending state
(:mod:`broker.group_commit.pending_pop`), so commands always fit the state to which they are
applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from broker.delivery.consumer_checks import check_may_consume, check_readable
from broker.delivery.message_reader import MessageReader
from broker.delivery.offset_quota import check_offset_quota
from broker.delivery.replica_selection import ReplicaSelection
from broker.errors import InvisibleTimeError, Refusal, UnavailableError
from broker.group_commit.batcher import Batcher
from broker.limits import CONSUME, STATE
from broker.metrics.broker_metrics import MessageRates
from broker.pop.auto_renewal import AutoRenewal
from broker.pop.dead_letters import DeadLetters
from broker.pop.held_receives import HeldReceives
from broker.pop.pop_request import (
    PopRequest,
    PopResult,
    PopStatus,
    ReceiptResult,
    ReceiptStatus,
)
from broker.pop.receipt_handle import ReceiptHandle, parse_handle, tag_of
from broker.pop.receivable_messages import Candidate
from broker.pop.receiver import Receiver, committing
from broker.pop.renewed_receipts import is_receipt_of, not_renewable
from broker.quotas.throttle import Throttle
from broker.state.commands import Command, PopAck, PopChange
from broker.state.pop_queues import PopKey, pack_runs
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import GroupConfig, retry_topic
from dledger.node.state_machine import Leadership
from store.field_checks import I64_MAX

_EXPIRED = ReceiptResult(ReceiptStatus.EXPIRED)
_INVALID = ReceiptResult(ReceiptStatus.INVALID)


class Pop:
    """Serves POP while this node is the leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        batcher: Batcher,
        replicas: ReplicaSelection,
        rates: MessageRates,
        ensure_group: Callable[[str], None],
        known_by_all: Callable[[], bool],
        broker_name: str,
        loop: asyncio.AbstractEventLoop,
        wall_clock: Callable[[], int],
        rng: Random,
    ) -> None:
        """``ensure_group`` creates a group on its first use. ``known_by_all``: whether every member
        knows the commands of POP. ``broker_name`` is a part of receipt handles."""
        self.quotas: Throttle | None = None
        """None without quotas."""
        self._machine = machine
        self._batcher = batcher
        self._rates = rates
        self._ensure_group = ensure_group
        self._known_by_all = known_by_all
        self._refusal: Refusal | None = None
        self._broker_name = broker_name
        self._loop = loop
        self._rng = rng
        self.held = HeldReceives(loop, batcher.now_ms)
        self.renewal = AutoRenewal(machine, batcher)
        self._dead_letters = DeadLetters(batcher=batcher, wall_clock=wall_clock)
        self._receiver = Receiver(
            machine=machine,
            reader=reader,
            batcher=batcher,
            replicas=replicas,
            dead_letters=self._dead_letters,
            broker_name=broker_name,
            loop=loop,
            rng=rng,
        )

    # --- events of the broker

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new leader's clock continues from the last command of POP. Held requests end without
        messages."""
        if leadership.serving:
            self._batcher.clock.reached(self._machine.state.pop.time_ms)
        else:
            self.held.wake_all()

    def refuse_all(self, why: Refusal) -> None:
        """Refuses everything from now on: the broker stops, or its state is wrong."""
        self._refusal = why
        self.held.wake_all()

    # --- receiving

    async def receive(self, request: PopRequest) -> PopResult:
        """Messages for a member of a group, now or before the deadline.

        Raises one of :data:`~broker.errors.REFUSALS`. If the answer is lost, the messages become
        visible again after the invisible time.
        """
        seen = self.held.events
        result, visible_ms = await self._first(request)
        while not result.messages and await self.held.wait(request, visible_ms, seen):
            seen = self.held.events
            result, visible_ms = await self._take(request)
        return result

    async def _first(self, request: PopRequest) -> tuple[PopResult, int | None]:
        """The first look, once the member is within its quotas; without messages if that takes
        longer than the request may wait."""
        quotas, waits = self.quotas, self._waits(request)
        if quotas is None or not waits:
            return await self._take(request)
        while await self.held.pause(request, waits):
            async with quotas.turn(request.caller, request.topic):
                waits = self._waits(request)
                if not waits:
                    return await self._take(request)
            if request.deadline_ms / 1000 <= self._loop.time():
                break
        return PopResult(PopStatus.NOTHING), None

    def _waits(self, request: PopRequest) -> float:
        if self.quotas is None:
            return 0.0
        self._check(request)
        return self.quotas.consumes(request.caller, request.topic)

    async def _take(self, request: PopRequest) -> tuple[PopResult, int | None]:
        """One look. It wakes the next request once it is through, and also if it is cancelled: a
        message that it leaves may have woken no other. After a refusal the next one looks later."""
        group, keys = self._check(request)
        try:
            taken = await self._receiver.take(request, group, keys)
            messages = taken.result.messages
            if messages:
                self.held.wake(request.topic, request.group)  # there may be more messages
                until_ms = messages[0].invisible_until_ms
                self.held.wake_at(request.topic, request.group, until_ms)
            for each in taken.committed:
                await each
        except asyncio.CancelledError:
            self.held.wake(request.topic, request.group)
            raise
        except BaseException:  # raised again: whatever refused this look, the next one waits
            self.held.refused(request.topic, request.group)
            raise
        if messages:
            self._received(request, taken.result)
        return taken.result, taken.visible_ms

    def _check(self, request: PopRequest) -> tuple[GroupConfig, Sequence[PopKey]]:
        """The settings of the group, and the queues to look at, starting with a random one."""
        self._check_serving()
        if not self._known_by_all():
            raise UnavailableError("POP needs a newer program on all members of the broker group")
        if not 0 < request.invisible_ms <= CONSUME.pop_invisible_ms_max:
            raise InvisibleTimeError(request.invisible_ms, 1, CONSUME.pop_invisible_ms_max)
        batcher, name = self._batcher, request.group
        topic = check_readable(request.topic, batcher.topic(request.topic), request.queue)
        queues = range(min(topic.read_queues, STATE.queues_max))
        group = batcher.group(name)
        check_may_consume(name, group)
        if group is None:
            group = GroupConfig(name)
            asked = queues if request.queue is None else (request.queue,)
            check_offset_quota(batcher, name, request.topic, asked)
        self._ensure_group(name)
        if request.queue is not None:
            return group, ((request.group, request.topic, request.queue),)
        keys = [(request.group, request.topic, queue_id) for queue_id in queues]
        keys += self._retries(request)
        first = self._rng.randrange(max(len(keys), 1))
        return group, (*keys[first:], *keys[:first])

    def _retries(self, request: PopRequest) -> Sequence[PopKey]:
        """The queues of the group's retry topic that may have a message for the request."""
        name = retry_topic(request.group)
        topic = self._batcher.topic(name) if request.retries else None
        if topic is None or not topic.readable or name == request.topic:
            return ()
        queues = range(min(topic.read_queues, STATE.queues_max))
        keys = ((request.group, name, queue_id) for queue_id in queues)
        return [key for key in keys if not self._receiver.is_empty(key)]

    def _received(self, request: PopRequest, result: PopResult) -> None:
        group, topic, messages = request.group, request.topic, result.messages
        size = sum(len(each.record) for each in messages)
        self._rates.pulled(topic, group, len(messages), size)
        if self.quotas is not None:
            self.quotas.consumed(request.caller, topic, len(messages), size)

    async def has_messages(self, request: PopRequest) -> bool:
        """Whether a request may find a message now or before its deadline. Filters are ignored.

        Raises as :meth:`receive`.
        """
        while True:
            _group, keys = self._check(request)
            seen = self.held.events
            times = [self._receiver.next_message_ms(request, key) for key in keys]
            next_ms = min((each for each in times if each is not None), default=None)
            if next_ms is not None and next_ms <= self._batcher.now_ms():
                self.held.notified(request.topic, request.group)  # the message is still there
                return True
            if not await self.held.wait(request, next_ms, seen):
                return False

    # --- ending and changing deliveries

    async def ack(self, group: str, topic: str, handles: Sequence[str]) -> list[ReceiptResult]:
        """Acknowledges deliveries: the group never receives their messages again.

        Raises one of :data:`~broker.errors.REFUSALS`; then all or none are acknowledged.
        """
        self._check_serving()
        now_ms = self._batcher.now_ms()
        results: list[ReceiptResult] = []
        acknowledged: dict[PopKey, list[int]] = {}
        for text in handles:
            handle, problem = self._delivery(group, topic, text, now_ms)
            if handle is not None:
                offsets = acknowledged.setdefault(_key(group, topic, handle), [])
                if handle.offset in offsets:
                    problem = _EXPIRED
                else:
                    offsets.append(handle.offset)
                    problem = ReceiptResult(ReceiptStatus.OK, text)
            results.append(problem)
        was_full = any(map(self._is_full, acknowledged))
        if acknowledged:
            self.held.acknowledged(topic, group, was_full=was_full)
        await self._commit(
            [PopAck(*key, pack_runs(sorted(offsets))) for key, offsets in acknowledged.items()]
        )
        return results

    async def change_invisible(
        self, group: str, topic: str, handle: str, invisible_ms: int
    ) -> ReceiptResult:
        """Makes a message invisible for ``invisible_ms`` from now on; 0: visible at once. The old
        handle expires, and the result has the new one."""
        self._check_serving()
        if not 0 <= invisible_ms <= CONSUME.pop_invisible_ms_max:
            raise InvisibleTimeError(invisible_ms, 0, CONSUME.pop_invisible_ms_max)
        now_ms = self._batcher.now_ms()
        known, problem = self._delivery(group, topic, handle, now_ms)
        if known is None:
            return problem
        nonce = not_renewable(self._rng.randrange(1, I64_MAX))
        until_ms = now_ms + invisible_ms
        key = _key(group, topic, known)
        if invisible_ms:
            self.held.wake_at(topic, group, until_ms)
        else:
            self.held.wake(topic, group)
        await self._commit([PopChange(*key, known.offset, nonce, until_ms, now_ms)])
        changed = known._replace(tag=tag_of(nonce), delivered_ms=now_ms, invisible_ms=invisible_ms)
        return ReceiptResult(ReceiptStatus.OK, str(changed), until_ms)

    async def to_dead_letter(self, group: str, topic: str, handle: str) -> ReceiptResult:
        """Makes a message a dead letter, because the member gives it up."""
        batcher = self._batcher
        self._check_serving()
        known, problem = self._delivery(group, topic, handle, batcher.now_ms())
        if known is None:
            return problem
        key = _key(group, topic, known)
        records = await self._receiver.records(key, [known.offset])
        again, problem = self._delivery(group, topic, handle, batcher.now_ms())
        pending = batcher.pop_queue(key)
        if again is None or pending is None or not records:
            return problem
        settings = batcher.group(group) or GroupConfig(group)
        letter = Candidate(known.offset, records[0], pending.queue.deliveries[known.offset])
        committed = committing(partial(self._dead_letters.bury, key, settings, letter))
        self.held.wake(topic, group)
        await committed
        return ReceiptResult(ReceiptStatus.OK, handle)

    def _delivery(
        self, group: str, topic: str, text: str, now_ms: int
    ) -> tuple[ReceiptHandle | None, ReceiptResult]:
        """The handle of a delivery that has not ended, or None with the reason."""
        handle = parse_handle(text, self._broker_name)
        if handle is None:
            return None, _INVALID
        pending = self._batcher.pop_queue(_key(group, topic, handle))
        if pending is None:
            return None, _INVALID
        known = pending.queue.deliveries.get(handle.offset)
        if known is None or not is_receipt_of(handle, known) or known.visible_ms <= now_ms:
            return None, _EXPIRED
        return handle, _EXPIRED

    def _check_serving(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self._batcher.check_serving()

    def _is_full(self, key: PopKey) -> bool:
        pending = self._batcher.pop_queue(key)
        return pending is not None and len(pending) >= STATE.pop_queue_deliveries_max

    async def _commit(self, commands: Sequence[Command]) -> None:
        """Adds commands in this turn of the loop, and waits until they are committed. Requests that
        may now find a message are woken in the same turn: later the caller may be gone."""
        if commands:
            await committing(partial(self._batcher.add_in_one_entry, (), commands))


def _key(group: str, topic: str, handle: ReceiptHandle) -> PopKey:
    """The queue of a delivery that a member received from the topic."""
    return group, retry_topic(group) if handle.is_retry else topic, handle.queue_id
