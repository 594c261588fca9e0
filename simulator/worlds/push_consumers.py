"""A whole cluster with consumers that behave on the wire as RocketMQ's Java push consumer does.

One group filters by tags, sends back what it cannot consume, and is moved back by an operator while
it consumes; the other locks its queues and consumes them in order. A world of its own, so that the
seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from simulator.engine.random_streams import CountingRandom
from simulator.hosts.client_host import ClientHost
from simulator.invariants import Invariant
from simulator.invariants.broker.long_polling import LongPollsAnswered
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.invariants.broker.queue_locks import OneLockOwner
from simulator.invariants.broker.redelivery_after_reset import RedeliveredAfterReset
from simulator.invariants.broker.retries_and_dead_letters import ReturnedMessages
from simulator.invariants.broker.sql92_selection import OnlySelectedBySql92
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.invariants.broker.tag_filter import OnlyTagged
from simulator.workload.history import History, Listener, Place, number_of
from simulator.workload.offset_reset import OffsetResetOperator
from simulator.workload.producer import CONFIG, ProducingClient
from simulator.workload.push_consumer import PushClient
from simulator.workload.push_listener import PushListener
from simulator.workload.push_messages import (
    RETRIES_MAX,
    WANTED_TAGS,
    fails,
    is_wanted,
    tag_of,
    task_content,
)
from simulator.workload.push_settings import RETRY_PREFIX
from simulator.worlds.broker_cluster import BrokerCluster
from store.message.record import MessageRecord

TOPIC = "tasks"
WORKERS, KEEPERS = "workers", "keepers"
PAUSE_SECONDS_MAX = 0.4
QUEUES = 2


class DeliveryForwarder(PushListener):
    """Tells checks of what one group is given of the topic."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        for listener in self._listeners:
            listener.delivered(consumer, place, record)


class FilteringGroupListener(DeliveryForwarder):
    """Of the group that filters and sends back."""

    def __init__(
        self,
        selected: OnlySelectedBySql92,
        returned: ReturnedMessages,
        prompt: LongPollsAnswered,
        now: Callable[[], float],
        listeners: Sequence[Listener],
    ) -> None:
        super().__init__(listeners)
        self._prompt = prompt
        self._now = now
        self._selected = selected
        self._tagged = OnlyTagged(WANTED_TAGS, tag_of)
        self._returned = returned

    @property
    def now(self) -> float:
        """See :class:`PushListener`."""
        return self._now()

    def answered(self, consumer: str, address: str, place: Place, asked_at: float) -> None:
        """See :class:`PushListener`."""
        self._prompt.answered(consumer, address, place, asked_at)

    def given(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        self._tagged.given(consumer, place, record)

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`. What comes again has another place, in the retry topic."""
        self._selected.delivered(consumer, place, record)
        if place[0] == TOPIC:
            super().delivered(consumer, place, record)

    def fails(self, record: MessageRecord) -> bool:
        """See :class:`PushListener`."""
        return fails(number_of(record.body), record.reconsume_times)

    def sends_back(self, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        self._returned.sends_back(record)

    def sent_back(self, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        self._returned.sent_back(record)

    def is_gone(self, record: MessageRecord) -> bool:
        """See :class:`PushListener`."""
        return self._returned.is_gone(record)


class OrderedGroupListener(OneLockOwner):
    """Of the group that consumes in order. A message fails the first time now and then."""

    def __init__(self, now: Callable[[], float], listeners: Sequence[Listener]) -> None:
        super().__init__(now)
        self._listeners = listeners

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        for listener in self._listeners:
            listener.delivered(consumer, place, record)

    def fails(self, record: MessageRecord) -> bool:
        """See :class:`PushListener`."""
        return fails(number_of(record.body), 0)


class PushConsumersCluster(BrokerCluster):
    """See the module."""

    target_clients = (*BrokerCluster.target_clients, "t0", "j0", "j1", "o0", "o1", "x0")

    def _make_clients(self, rng: CountingRandom) -> None:
        super()._make_clients(rng)
        self.tasks = History(self.trace.note)
        self._make_checks()
        self._producer = ProducingClient(
            self.name_servers,
            (TOPIC,),
            self.tasks,
            self.streams.stream("tasks"),
            pause_max=self.added_pauses * PAUSE_SECONDS_MAX,
            patient=False,
            config=replace(CONFIG, default_queues=QUEUES),
            content=task_content,
        )
        self._operator = OffsetResetOperator(
            self.name_servers, WORKERS, TOPIC, self.streams.stream("operator")
        )
        groups = {
            "j": (WORKERS, WANTED_TAGS, self._workers),
            "o": (KEEPERS, (), self._keepers),
        }
        self._pushed: dict[str, PushClient] = {
            f"{letter}{place}": PushClient(
                self.name_servers,
                group,
                {TOPIC: tags},
                listener,
                self.streams.stream(f"{group} {place}"),
                in_order=group == KEEPERS,
            )
            for letter, (group, tags, listener) in groups.items()
            for place in range(2)
        }
        mains = {
            "t0": self._producer.main,
            **{name: each.main for name, each in self._pushed.items()},
            "x0": self._operator.main,
        }
        self.clients += [
            ClientHost(name, f"10.0.4.{place}", self.environment, main, self._client_ended)
            for place, (name, main) in enumerate(mains.items(), 1)
        ]

    def _make_checks(self) -> None:
        stored = StoredMessages(self.hosts, (TOPIC,))
        content = MessageContentKept((TOPIC,))
        self._selected = OnlySelectedBySql92(WORKERS, TOPIC, is_wanted)
        self._returned = ReturnedMessages(WORKERS, TOPIC, RETRIES_MAX)
        self._kept = NothingSkipped(KEEPERS)
        self._prompt = LongPollsAnswered((TOPIC, RETRY_PREFIX + WORKERS), self.loop.time)
        self._again = RedeliveredAfterReset(
            lambda place: is_wanted(number_of(stored.places[place].body))
        )
        self._workers = FilteringGroupListener(
            self._selected,
            self._returned,
            self._prompt,
            self.loop.time,
            (stored, content, self._again),
        )
        self._keepers = OrderedGroupListener(self.loop.time, (stored, content, self._kept))
        self.tasks.listeners += [stored, content, self._returned]
        self._task_checks: list[Invariant] = [
            stored,
            content,
            self._selected,
            self._returned,
            self._kept,
            self._keepers,
            self._prompt,
        ]

    def _make_invariants(self) -> Sequence[Invariant]:
        return [*super()._make_invariants(), *self._task_checks]

    def _client_ended(self, client_host: ClientHost) -> None:
        super()._client_ended(client_host)
        self.tasks.client_ended(client_host.name)
        self._keepers.client_ended(client_host.name)

    def _stop_clients(self) -> None:
        super()._stop_clients()
        self._producer.stop()
        self._operator.stop()

    def _open_calls(self) -> int:
        return super()._open_calls() + len(self.tasks.open)

    def _all_delivered(self) -> bool:
        return super()._all_delivered() and self._all_done()

    def _all_done(self) -> bool:
        """Each task was consumed, or has become a dead letter after its last attempt."""
        if self._returned.waiting:
            return False
        for queue, end in self.stored.ends.items():
            for_workers = queue[0] in {TOPIC, RETRY_PREFIX + WORKERS}
            if for_workers and not self._selected.reaches(*queue, end):
                return False
            if queue[0] == TOPIC and not self._kept.reaches(*queue, end):
                return False
        return True

    async def _heal_clients(self) -> None:
        await super()._heal_clients()
        self._prompt.calm_since = self.loop.time()
        await self._reset_group()
        await self.until(self._all_done, "every task is done")
        if self._prompt.seen:
            self.trace.coverage_mark("held pull answered in a calm phase")
        for client_host in self.clients:
            if client_host.name in self._pushed and client_host.process is not None:
                client_host.process.run(self._pushed[client_host.name].close, client_host)
        await self.pass_time(4.0)

    async def _reset_group(self) -> None:
        """All is delivered again that the log still has, unless the leader goes meanwhile."""
        while not self._redelivered():
            ends = {queue: end for queue, end in self.stored.ends.items() if queue[0] == TOPIC}
            self._again.begin(ends)
            self._operator.reset_all()
            await self.until(
                partial(self._redelivered_or_new_leader, self._terms()),
                "a group that was moved back is given all again",
            )
        self.trace.coverage_mark("group moved back was given all again")

    def _redelivered_or_new_leader(self, terms: list[int]) -> bool:
        return self._redelivered() or self._terms() != terms

    def _redelivered(self) -> bool:
        moved = self._operator.reset_to
        return moved is not None and self._again.is_complete(
            {(queue.topic, queue.queue_id): offset for queue, offset in moved.items()}
        )

    def _terms(self) -> list[int]:
        return [host.node.core.term for host in self.hosts if host.node is not None]
