"""Consumers that behave on the wire as RocketMQ's Java push consumer does.

One group filters by tags, sends back messages, and an operator resets it while it consumes. The
other locks its queues and consumes them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from broker.client.message import MessageQueue
from simulator.hosts.broker_host import GROUP as BROKER
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.client_host import ClientHost
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
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import Messages
from simulator.worlds.workload import Workload
from store.message.record import MessageRecord

TOPIC = "tasks"
WORKERS, KEEPERS = "workers", "keepers"
PAUSE_SECONDS_MAX = 0.4
QUEUES = 2


class DeliveryForwarder(PushListener):
    """Passes the deliveries of one group on to checks."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        for listener in self._listeners:
            listener.delivered(consumer, place, record)


class FilteringGroupListener(DeliveryForwarder):
    """The listener of the group that filters and sends back."""

    def __init__(
        self,
        selected: OnlySelectedBySql92,
        returned: ReturnedMessages,
        prompt: LongPollsAnswered,
        listeners: Sequence[Listener],
    ) -> None:
        super().__init__(listeners)
        self._prompt = prompt
        self._selected = selected
        self._tagged = OnlyTagged(WANTED_TAGS, tag_of)
        self._returned = returned

    def answered(self, consumer: str, address: str, place: Place, asked_at: float) -> None:
        """See :class:`PushListener`."""
        self._prompt.answered(consumer, address, place, asked_at)

    def given(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`."""
        self._tagged.given(consumer, place, record)

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`PushListener`. A message that comes again has another place, in the retry
        topic."""
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
    """The listener of the group that consumes in order. Sometimes a message fails at first."""

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


class PushConsumers(Workload):
    """See the module."""

    targets = ("t0", "j0", "j1", "o0", "o1", "x0")

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self.tasks = History(cluster.trace.note)
        self._make_checks()
        stream = cluster.streams.stream
        self._producer = ProducingClient(
            (TOPIC,),
            self.tasks,
            stream("tasks"),
            pause_max=cluster.settings.added_pauses * PAUSE_SECONDS_MAX,
            patient=False,
            config=replace(CONFIG, default_queues=QUEUES),
            content=task_content,
        )
        self._operator = OffsetResetOperator(WORKERS, TOPIC, stream("operator"))
        self.clients, self.histories = [self._producer, self._operator], [self.tasks]
        groups = {
            "j": (WORKERS, WANTED_TAGS, self._workers),
            "o": (KEEPERS, (), self._keepers),
        }
        self._pushed: dict[str, PushClient] = {
            f"{letter}{place}": PushClient(
                group,
                {TOPIC: tags},
                listener,
                stream(f"{group} {place}"),
                in_order=group == KEEPERS,
            )
            for letter, (group, tags, listener) in groups.items()
            for place in range(2)
        }
        pushed = [each.main for each in self._pushed.values()]
        mains = [self._producer.main, *pushed, self._operator.main]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.4", mains)

    def _make_checks(self) -> None:
        now = self._cluster.loop.time
        stored = StoredMessages(self._cluster.hosts, (TOPIC,))
        content = MessageContentKept((TOPIC,))
        self._selected = OnlySelectedBySql92(WORKERS, TOPIC, is_wanted)
        self._returned = ReturnedMessages(WORKERS, TOPIC, RETRIES_MAX)
        self._kept = NothingSkipped(KEEPERS)
        self._prompt = LongPollsAnswered((TOPIC, RETRY_PREFIX + WORKERS), now)
        self._again = RedeliveredAfterReset(
            lambda place: is_wanted(number_of(stored.places[place].body))
        )
        self._workers = FilteringGroupListener(
            self._selected, self._returned, self._prompt, (stored, content, self._again)
        )
        self._keepers = OrderedGroupListener(now, (stored, content, self._kept))
        self.tasks.listeners += [stored, content, self._returned]
        self.invariants = [
            stored,
            content,
            self._selected,
            self._returned,
            self._kept,
            self._keepers,
            self._prompt,
        ]

    def client_ended(self, client_host: ClientHost) -> None:
        """See :class:`Workload`."""
        super().client_ended(client_host)
        self._keepers.client_ended(client_host.name)

    def delivered(self) -> bool:
        """Each task was consumed, or has become a dead letter after its last attempt. The group
        that consumes in order may wait for a lock."""
        if self._returned.waiting:
            return False
        for queue, end in self._ends().items():
            for_workers = queue[0] in {TOPIC, RETRY_PREFIX + WORKERS}
            if for_workers and not self._selected.reaches(*queue, end):
                return False
            if queue[0] == TOPIC and not (
                self._kept.reaches(*queue, end) or self._may_be_left_locked(*queue)
            ):
                return False
        return True

    def _may_be_left_locked(self, topic: str, queue_id: int) -> bool:
        return self._keepers.may_be_left_locked(MessageQueue(topic, BROKER, queue_id))

    def _waits_for_a_lock(self) -> bool:
        return any(
            self._may_be_left_locked(*queue)
            for queue, end in self._ends().items()
            if queue[0] == TOPIC and not self._kept.reaches(*queue, end)
        )

    def _ends(self) -> Mapping[tuple[str, int], int]:
        return self._cluster.workload(Messages).stored.ends

    async def heal(self) -> None:
        """See :class:`Workload`."""
        cluster = self._cluster
        self._prompt.calm_since = cluster.loop.time()
        await self._reset_group()
        await cluster.until(self.delivered, "every task is done")
        while self._waits_for_a_lock():
            cluster.trace.coverage_mark("queue waited for a lock of a process that had died")
            await cluster.pass_time(1.0)
        await cluster.until(self.delivered, "every task is done once its lock has expired")
        if self._prompt.seen:
            cluster.trace.coverage_mark("held pull answered in a calm phase")
        await self._leave()
        await cluster.pass_time(4.0)

    async def _leave(self) -> None:
        """One member of each group leaves, the other is notified of that, and leaves as well.

        It would look by itself too, but later: RocketMQ's clients, every 20 s.
        """
        last = {name: each.notifications for name, each in self._pushed.items() if name[-1] != "0"}
        self._close(self._pushed.keys() - last.keys())
        await self._cluster.until(
            lambda: all(self._pushed[name].notifications > told for name, told in last.items()),
            "a member is notified that another one has left",
        )
        self._close(last.keys())

    def _close(self, names: Collection[str]) -> None:
        for client_host in self.client_hosts:
            if client_host.name in names and client_host.process is not None:
                client_host.process.run(self._pushed[client_host.name].close, client_host)

    async def _reset_group(self) -> None:
        """Everything that the log still has is delivered again, unless the leader goes
        meanwhile."""
        while not self._redelivered():
            ends = {queue: end for queue, end in self._ends().items() if queue[0] == TOPIC}
            self._again.begin(ends)
            self._operator.reset_all()
            await self._cluster.until(
                partial(self._redelivered_or_new_leader, self._terms()),
                "a group that was moved back is given all again",
            )
        self._cluster.trace.coverage_mark("group moved back was given all again")

    def _redelivered_or_new_leader(self, terms: list[int]) -> bool:
        return self._redelivered() or self._terms() != terms

    def _redelivered(self) -> bool:
        moved = self._operator.reset_to
        return moved is not None and self._again.is_complete(
            {(queue.topic, queue.queue_id): offset for queue, offset in moved.items()}
        )

    def _terms(self) -> list[int]:
        hosts = self._cluster.hosts
        return [host.node.core.term for host in hosts if host.node is not None]
