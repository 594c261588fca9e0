"""A whole cluster, some of whose messages wait for their time: delay levels and times of delivery.

A world of its own, so that the seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from simulator.engine.random_streams import CountingRandom
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.client_host import ClientHost
from simulator.invariants import Invariant
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.invariants.broker.scheduled_messages import ScheduledMessages
from simulator.workload.consumer import ConsumingClient
from simulator.workload.history import History
from simulator.workload.scheduled_producer import PAUSE_MAX, ScheduledMessagesProducer
from simulator.worlds.broker_cluster import BrokerCluster

TOPIC = "later"
GROUP = "patient"
DELAY_PROPERTIES = ("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS")
"""What clients and brokers add to a message that waits."""


class ScheduledMessagesCluster(BrokerCluster):
    """See the module."""

    delaying_bursts: ClassVar[Sequence[int]] = (1,)
    """How many messages that wait are sent at the same instant; drawn each time."""
    target_clients = (*BrokerCluster.target_clients, "d0", "w0")

    def _make_hosts(self) -> Sequence[BrokerHost]:
        hosts = super()._make_hosts()
        for host in hosts:
            host.settings = replace(host.settings, retains=True)
        return hosts

    def _make_clients(self, rng: CountingRandom) -> None:
        super()._make_clients(rng)
        self.later = History(self.trace.note)
        self._delaying = ScheduledMessagesProducer(
            self.name_servers,
            TOPIC,
            self.later,
            self.streams.stream("delaying"),
            pause_max=self.added_pauses * PAUSE_MAX,
            bursts=self.delaying_bursts,
        )
        self._patient = ConsumingClient(
            self.name_servers,
            GROUP,
            (TOPIC,),
            self.later,
            self.streams.stream("patient"),
        )
        self._delayer = ClientHost(
            "d0", "10.0.1.50", self.environment, self._delaying.main, self._client_ended
        )
        self._receiver = ClientHost(
            "w0", "10.0.1.51", self.environment, self._patient.main, self._client_ended
        )
        self.clients += [self._delayer, self._receiver]

    def _make_invariants(self) -> Sequence[Invariant]:
        invariants = super()._make_invariants()
        self.waited = ScheduledMessages(TOPIC)
        self.nothing_late_skipped = NothingSkipped(GROUP)
        content = MessageContentKept((TOPIC,), DELAY_PROPERTIES)
        self.later.listeners += [self.waited, content, self.nothing_late_skipped]
        return [*invariants, self.waited, content, self.nothing_late_skipped]

    def _client_ended(self, client_host: ClientHost) -> None:
        super()._client_ended(client_host)
        self.later.client_ended(client_host.name)

    def _stop_clients(self) -> None:
        super()._stop_clients()
        self._delaying.stop()

    def _open_calls(self) -> int:
        return super()._open_calls() + len(self.later.open)

    def _all_delivered(self) -> bool:
        """What waits is delivered, and all of it has reached the consumers."""
        return (
            super()._all_delivered()
            and not self.waited.waiting
            and all(
                self.nothing_late_skipped.reaches(*queue, end)
                for queue, end in self.stored.ends.items()
                if queue[0] == TOPIC
            )
        )

    async def _heal_clients(self) -> None:
        await super()._heal_clients()
        if self._receiver.process is not None:
            self._receiver.process.run(self._patient.close, self._receiver)
        await self.pass_time(3.0)
