"""Scheduled messages: delay levels and delivery times, some of them recalled."""

from __future__ import annotations

from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.invariants.broker.scheduled_messages import ScheduledMessages as MessagesInTime
from simulator.workload.consumer import ConsumingClient
from simulator.workload.history import History
from simulator.workload.scheduled_producer import PAUSE_MAX, ScheduledMessagesProducer
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import Messages
from simulator.worlds.workload import Workload

TOPIC = "later"
GROUP = "patient"
DELAY_PROPERTIES = ("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS")
"""Properties that clients and brokers add to a scheduled message."""


class ScheduledMessages(Workload):
    """See the module. Brokers must keep what waits (``BrokerSettings.retains``)."""

    targets = ("d0", "w0")

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self.later = History(cluster.trace.note)
        delaying = ScheduledMessagesProducer(
            TOPIC,
            self.later,
            cluster.streams.stream("delaying"),
            recalling=cluster.streams.stream("recalling"),
            pause_max=cluster.settings.added_pauses * PAUSE_MAX,
            bursts=cluster.settings.delaying_bursts,
        )
        self._patient = ConsumingClient(
            GROUP, (TOPIC,), self.later, cluster.streams.stream("patient")
        )
        self._receiver = cluster.client_host("w0", "10.0.1.51", self._patient.main)
        self.client_hosts = [
            cluster.client_host("d0", "10.0.1.50", delaying.main),
            self._receiver,
        ]
        self.clients, self.histories = [delaying], [self.later]
        self.waited = MessagesInTime(TOPIC, cluster.trace.coverage_mark)
        self._skipped = NothingSkipped(GROUP)
        content = MessageContentKept((TOPIC,), DELAY_PROPERTIES)
        self.later.listeners += [self.waited, content, self._skipped]
        self.invariants = [self.waited, content, self._skipped]

    def delivered(self) -> bool:
        """Whether all scheduled messages are delivered and have reached the consumers."""
        ends = self._cluster.workload(Messages).stored.ends
        return not self.waited.waiting and all(
            self._skipped.reaches(*queue, end) for queue, end in ends.items() if queue[0] == TOPIC
        )

    async def heal(self) -> None:
        """See :class:`Workload`."""
        if self._receiver.process is not None:
            self._receiver.process.run(self._patient.close, self._receiver)
        await self._cluster.pass_time(3.0)
