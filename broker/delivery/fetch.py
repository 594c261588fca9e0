"""The one way to fetch messages of a queue, for every wire.

A fetch is checked; its messages are found by the rows of the queue
(:mod:`broker.delivery.message_reader`), loaded, filtered and counted; then it is answered once. If
no message is there yet, the fetch is held until one arrives or its time is up
(:mod:`broker.delivery.long_polling`). Leaders and followers serve the messages that they have
applied. The answer names the member to read from next (:mod:`broker.delivery.replica_selection`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from broker.config.dynamic_settings import DynamicSettings
from broker.delivery.consumer_checks import check_may_consume, check_readable
from broker.delivery.long_polling import HeldPull, LongPolling, Owner
from broker.delivery.message_filter import SCAN_LIMITS, MessageFilter, message_filter, selected
from broker.delivery.message_lookup import MessageLookup
from broker.delivery.message_reader import (
    GetMessageResult,
    GetMessageStatus,
    MessageReader,
    PullLimits,
)
from broker.delivery.offset_quota import queues_without_room
from broker.delivery.offset_resets import OffsetResetter, PendingResets
from broker.delivery.queue_locks import QueueLocks
from broker.delivery.replica_selection import ReplicaSelection
from broker.errors import (
    ForbiddenError,
    RefusedError,
    StaleSubscriptionError,
    UnknownSubscriptionError,
)
from broker.filter.subscription import ALL, TAG_TYPE, Subscription
from broker.group_commit.batcher import Batcher
from broker.limits import CONSUME
from broker.metrics.broker_metrics import MessageRates
from broker.quotas.throttle import NOBODY, Caller, Throttle
from broker.state.state_machine import BrokerStateMachine
from dledger.histogram import Histogram
from store.errors import StoreError
from store.io.filesystem import Bytes

MESSAGES_USUAL = 32
BYTES_USUAL = 256 << 10

NO_MESSAGE: frozenset[int] = frozenset()
"""The tags of a held pull that no message wakes."""

NO_GROUP = "(http)"
"""The name under which reads without a group are counted. No group has such a name."""


def fetch_limits(messages: int, size: int | None = None) -> PullLimits:
    """The limits of one fetch of ``messages`` messages and ``size`` bytes.

    A request for up to 32 messages gets RocketMQ's limits, 32 messages and 256 KiB. A request for
    more may get up to 1,024 messages and 4 MiB. A given ``size`` counts up to 4 MiB.
    """
    messages = max(1, min(messages, CONSUME.pull_messages_max))
    bytes_max = CONSUME.pull_bytes_max
    if size is None:
        size = BYTES_USUAL if messages <= MESSAGES_USUAL else bytes_max
    return PullLimits(messages, max(1, min(size, bytes_max)))


class FetchRequest(NamedTuple):
    """A request for messages of a queue from ``offset`` on."""

    topic: str
    queue_id: int
    offset: int
    limits: PullLimits
    group: str = ""
    """Empty: the fetch is without a group, its permissions and its subscription."""
    expression: str | None = ALL
    """The filter; None: the subscription in the heartbeats of the group's members, of ``version``
    or later."""
    expression_type: str = TAG_TYPE
    version: int = 0
    commit_offset: int | None = None
    """An offset to commit for the group, if it is given and valid."""
    hold_seconds: float = 0.0
    """How long the fetch waits for a message, in seconds."""
    owner: Owner | None = None
    """A held fetch is dropped when this is closed."""
    caller: Caller = NOBODY
    """The caller whose quotas count."""
    admit: Callable[[int], None] | None = None
    """Called with the number of bytes before they are loaded. It may raise a
    :class:`~broker.errors.RefusedError`, which then ends the fetch."""


class Fetched(NamedTuple):
    """The result of a fetch. ``parts`` are the records as the log has them, in order."""

    found: GetMessageResult
    parts: Sequence[Bytes]
    offset: int
    """The offset at which the fetch began."""
    broker_id: int
    """The member to read from next: 0 is the leader."""


Done: TypeAlias = Callable[[Fetched | None, RefusedError | StoreError | None], None]
"""Called once, now or later. After a :class:`~store.errors.StoreError` the client stays at its
offset: other nodes have the message."""


class Fetch:
    """A fetch in progress. It may be held and run again until its deadline."""

    __slots__ = ("begun_at", "deadline", "done", "held", "request", "waits", "wanted")

    def __init__(
        self, request: FetchRequest, wanted: MessageFilter, deadline: float, done: Done
    ) -> None:
        self.request = request
        self.wanted = wanted
        self.deadline = deadline
        """By the loop's time."""
        self.done = done
        self.held: HeldPull | None = None
        self.begun_at = 0.0
        """The time of its last run, by the clock for latencies."""
        self.waits = 0.0
        """The seconds that it waited because its client was beyond a quota."""


class Consumers(Protocol):
    """The used part of :class:`~broker.remoting.connected_clients.ConnectedClients`."""

    def subscription(self, group: str, topic: str) -> Subscription | None: ...

    def is_broadcasting(self, group: str) -> bool: ...


class Delivery:
    """Delivers the messages of this node."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        batcher: Batcher,
        consumers: Consumers,
        lookup: MessageLookup,
        settings: DynamicSettings,
        replica_selection: ReplicaSelection,
        rates: MessageRates,
        ensure_group: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        """``ensure_group`` creates a group on its first use. ``clock`` gives seconds of a monotonic
        clock."""
        self.fetch_seconds = Histogram()
        """The time to find, load and filter messages, without the time of waiting."""
        self.quotas: Throttle | None = None
        """None without quotas."""
        self._clock = clock
        self._machine = machine
        self._reader = reader
        self._batcher = batcher
        self._consumers = consumers
        self._settings = settings
        self.resets = PendingResets(loop.time)
        self.replica_selection = replica_selection
        self.long_polling = LongPolling(loop)
        self.locks = QueueLocks(loop.time, batcher.topic)
        self.resetter = OffsetResetter(
            batcher=batcher,
            reader=reader,
            lookup=lookup,
            pending=self.resets,
            long_polling=self.long_polling,
        )
        self._rates = rates
        self._ensure_group = ensure_group
        self._loop = loop
        self._lets_go = False

    def fetch(self, request: FetchRequest, done: Done) -> Fetch:
        """Calls ``done`` with the result, now or later.

        Raises one of :data:`~broker.errors.REFUSALS` if the request is refused.
        """
        group, topic, queue_id = request.group, request.topic, request.queue_id
        check_readable(topic, self._machine.state.topics.get(topic), queue_id)
        if group:
            self._check_group(group)
        if request.expression is None:
            wanted = self._subscribed(request)
        else:
            wanted = message_filter(self._settings, request.expression_type, request.expression)
        if group:
            self._ensure_group(group)
            if request.commit_offset is not None:
                self._commit_offset(group, topic, queue_id, request.commit_offset)
        hold_seconds = request.hold_seconds
        if hold_seconds > 0:
            hold_seconds = min(hold_seconds, CONSUME.long_poll_seconds_max)
            fetch = Fetch(request, wanted, self._loop.time() + hold_seconds, done)
        else:
            fetch = Fetch(request, wanted, 0.0, done)
        if self.quotas is None:
            self._run(fetch)
        else:
            self._run_within_quotas(fetch)
        return fetch

    def cancel(self, fetch: Fetch) -> None:
        """Drops a held fetch without an answer: its client is gone."""
        if fetch.held is not None:
            self.long_polling.drop(fetch.held)

    def let_go(self) -> None:
        """Answers held fetches at once, because this node stops: their clients look for another
        leader. A fetch that comes later is held once. Otherwise a client that knows no other leader
        would ask again and again."""
        self._lets_go = True
        self.long_polling.wake_all()

    def leads_no_more(self) -> None:
        """Forgets the state that only a leader has."""
        self.locks.clear()
        self.resets.clear()

    # --- checks of a request

    def _check_group(self, group: str) -> None:
        settings = self._batcher.group(group)
        check_may_consume(group, settings)
        if (
            settings is not None
            and not settings.consume_broadcast_enable
            and self._consumers.is_broadcasting(group)
        ):
            raise ForbiddenError(f"the consumer group[{group}] can not consume by broadcast way")

    def _subscribed(self, request: FetchRequest) -> MessageFilter:
        group, topic = request.group, request.topic
        known = self._consumers.subscription(group, topic)
        if known is None:
            raise UnknownSubscriptionError(f"the group {group} has no subscription to {topic}")
        if known.version < request.version:
            raise StaleSubscriptionError(
                f"the subscription of {group} to {topic} known here is not the latest"
            )
        return message_filter(self._settings, known.expression_type, known.expression)

    def _commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An invalid offset is ignored here. The answer may correct the client: if a queue has lost
        its newest messages, it sends the client back to the end."""
        batcher, resets = self._batcher, self.resets
        if not batcher.serving or not 0 <= offset <= batcher.end_offset(topic, queue_id):
            return
        if resets and resets.is_pending(group, topic, queue_id):
            return
        if not queues_without_room(batcher, group, topic, (queue_id,)):
            batcher.add_lazy_offset(group, topic, queue_id, offset)

    # --- running a fetch

    def _run_within_quotas(self, fetch: Fetch) -> None:
        """Runs a fetch once its client is within its quotas. A long poll that ends before that is
        answered without messages. A client that does not wait gets messages after one wait."""
        request, now = fetch.request, self._loop.time()
        waits = 0.0
        if self.quotas is not None:
            waits = self.quotas.consumes(request.caller, request.topic)
        if waits and not fetch.waits:
            fetch.waits = waits
        elif not waits or not fetch.deadline:
            self._run(fetch)
            return
        until = now + waits if not fetch.deadline else min(now + waits, fetch.deadline)
        run = partial(self._run_within_quotas, fetch)
        if now >= until or not self._hold(fetch, NO_MESSAGE, run, until):
            first, end = self._reader.offsets(request.topic, request.queue_id)
            again = GetMessageStatus.NO_MATCHED_MESSAGE
            self._answer(fetch, GetMessageResult(again, request.offset, first, end))

    def _run(self, fetch: Fetch) -> None:
        request = fetch.request
        if self.resets and self._was_moved(fetch):
            return
        fetch.begun_at = self._clock()
        codes, selector = fetch.wanted.codes, fetch.wanted.selector
        limits = request.limits if selector is None else SCAN_LIMITS
        try:
            found = self._reader.find(
                request.topic, request.queue_id, request.offset, limits, codes
            )
            if found.ranges and request.admit is not None:
                request.admit(sum(each.size for each in found.ranges))
        except (StoreError, RefusedError) as error:
            fetch.done(None, error)
            return
        if found.ranges:
            if self.quotas is not None and selector is None:
                # Counted before loading, so that other fetches of the same quota see it.
                size = sum(each.size for each in found.ranges)
                self.quotas.consumed(request.caller, request.topic, found.messages, size)
            self._reader.load(found.ranges, partial(self._loaded, fetch, found))
        elif not _is_nothing_yet(found, request.offset) or not self._hold_for_message(fetch):
            self._rates.pulled(request.topic, request.group or NO_GROUP, 0, 0)
            self._answer(fetch, found)

    def _was_moved(self, fetch: Fetch) -> bool:
        """Whether an offset reset moved the group; the answer then has the new offset."""
        group, topic, queue_id = fetch.request.group, fetch.request.topic, fetch.request.queue_id
        offset = self.resets.take(group, topic, queue_id)
        if offset is None or offset == fetch.request.offset:
            return False
        first, end = self._reader.offsets(topic, queue_id)
        self._answer(fetch, GetMessageResult(GetMessageStatus.OFFSET_RESET, offset, first, end))
        return True

    def _hold_for_message(self, fetch: Fetch) -> bool:
        was_held = fetch.held is not None
        if fetch.deadline <= self._loop.time() or (self._lets_go and was_held):
            return False
        return self._hold(fetch, fetch.wanted.codes, partial(self._run, fetch), fetch.deadline)

    def _hold(
        self, fetch: Fetch, codes: frozenset[int] | None, run: Callable[[], None], until: float
    ) -> bool:
        """Holds a fetch for messages with these tags codes. False: no more can be held."""
        request = fetch.request
        held = HeldPull(
            request.topic, request.queue_id, codes, run, request.owner, fetch.wanted.size
        )
        if not self.long_polling.hold(held, until):
            return False
        fetch.held = held
        return True

    def _loaded(
        self,
        fetch: Fetch,
        found: GetMessageResult,
        parts: Sequence[Bytes],
        error: StoreError | None,
    ) -> None:
        request, selector = fetch.request, fetch.wanted.selector
        if error is None and selector is not None:
            try:
                found, parts = selected(selector, request.offset, found, parts, request.limits)
            except StoreError as damage:
                fetch.done(None, damage)
                return
        if error is None:
            size = sum(map(len, parts))
            self.fetch_seconds.observe(self._clock() - fetch.begun_at)
            self._rates.pulled(request.topic, request.group or NO_GROUP, found.messages, size)
            if self.quotas is not None and selector is not None:
                self.quotas.consumed(request.caller, request.topic, found.messages, size)
            self._answer(fetch, found, parts)
        elif request.offset < self._reader.offsets(request.topic, request.queue_id)[0]:
            self._run(fetch)  # expired during the read; now the queue begins later
        else:
            fetch.done(None, error)

    def _answer(self, fetch: Fetch, found: GetMessageResult, parts: Sequence[Bytes] = ()) -> None:
        request, machine = fetch.request, self._machine
        group = machine.state.groups.get(request.group)
        broker_id = self.replica_selection.suggested_broker_id(
            found.ranges,
            machine.applied_end,
            None if group is None else group.which_broker_when_slow,
        )
        fetch.done(Fetched(found, parts, request.offset, broker_id), None)


def _is_nothing_yet(found: GetMessageResult, offset: int) -> bool:
    """Whether a fetch from ``offset`` on may return the next stored message."""
    status = found.status
    return status is GetMessageStatus.OFFSET_OVERFLOW_ONE or (
        status is GetMessageStatus.NO_MESSAGE_IN_QUEUE and offset == 0
    )
