"""Producers, consumers, and clients of offsets and topics: the base of all broker worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from simulator.faults.crash_on_delivery import CrashOnDelivery
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.host import Host
from simulator.invariants import Invariant
from simulator.invariants.broker.linearizable_registers import check_linearizable
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.message_order import Ordering
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.workload.consumer import ConsumingClient
from simulator.workload.history import History
from simulator.workload.producer import CONFIG as PRODUCER_CONFIG
from simulator.workload.producer import ProducingClient
from simulator.workload.registers import RegisterClient, RegisterHistory
from simulator.worlds.cluster import Cluster
from simulator.worlds.workload import Workload

TOPICS = ("orders", "bills")
GROUP = "readers"


class MessageChecks:
    """Checks of the messages of one broker group. They listen to ``history``."""

    def __init__(self, hosts: Sequence[BrokerHost], history: History) -> None:
        self.stored = StoredMessages(hosts, TOPICS)
        self._skipped = NothingSkipped(GROUP)
        content = MessageContentKept(TOPICS)
        history.listeners += [self.stored, content, Ordering(), self._skipped]
        self.invariants: Sequence[Invariant] = [self.stored, content, self._skipped]

    def delivered(self) -> bool:
        """Whether the readers have all messages that this group has stored for them."""
        ends = self.stored.ends
        return all(
            self._skipped.reaches(*queue, end) for queue, end in ends.items() if queue[0] in TOPICS
        )


class Messages(Workload):
    """See the module. ``p0`` waits for each acknowledgement, ``p1`` does not."""

    targets = ("p0", "p1", "c0", "c1", "r0", "r1")

    def __init__(
        self,
        cluster: Cluster[BrokerHost],
        make_history: Callable[[Callable[[str, str], None]], History] = History,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        rng, settings, stream = cluster.rng, cluster.settings, cluster.streams.stream
        self.history = make_history(cluster.trace.note)
        self.registers = RegisterHistory(stream("offsets set back"))
        pause_max = rng.choice(settings.client_pauses)
        drawn = len(settings.impatience) > 1
        impatience = rng.choice(settings.impatience) if drawn else settings.impatience[0]
        patient = replace(PRODUCER_CONFIG, default_queues=settings.queues_per_topic)
        hasty = replace(patient, request_seconds=impatience)
        self._producing = [
            ProducingClient(
                TOPICS,
                self.history,
                stream(f"producer {place}"),
                pause_max=pause_max if place else settings.patient_pauses * pause_max,
                patient=place == 0,
                bursts=settings.client_bursts,
                config=hasty if place else patient,
            )
            for place in range(2)
        ]
        self._consuming = {
            f"c{place}": ConsumingClient(
                GROUP,
                TOPICS,
                self.history,
                stream(f"consumer {place}"),
                config=settings.consumer_config,
            )
            for place in range(2)
        }
        self._asking = {
            f"r{place}": RegisterClient(
                TOPICS[0],
                self.registers,
                stream(f"registers {place}"),
                pause_max=settings.register_pauses * pause_max,
                at_followers=settings.reads_at_followers,
                bursts=settings.register_bursts,
                fills=place == 0,
            )
            for place in range(2)
        }
        self._crash_on_delivery = CrashOnDelivery(cluster)
        self.history.listeners.append(self._crash_on_delivery)
        mains = [
            *(each.main for each in self._producing),
            *(each.main for each in self._consuming.values()),
            *(each.main for each in self._asking.values()),
        ]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.1", mains)
        self.clients = [*self._producing, *self._asking.values()]
        self.histories = [self.history, self.registers]
        self._checks = MessageChecks(cluster.hosts, self.history)
        self.stored = self._checks.stored
        """Checks of the messages of all topics, also of other workloads."""
        self.invariants = [*self._checks.invariants]

    def stop(self) -> None:
        """See :class:`Workload`."""
        super().stop()
        self._crash_on_delivery.disarm()

    def ask_at_once(self, host: Host, *, is_write: bool) -> None:
        """See :class:`Workload`. Nobody reads offsets and topics of another group."""
        if host not in self._cluster.hosts:
            return
        address = host.addresses[1]
        for client_host in self.client_hosts:
            asker = self._asking.get(client_host.name)
            if asker is not None and client_host.process is not None:
                client_host.process.run(asker.ask_at_once, client_host, address, is_write)

    def crash_given(self, client: str, victim: str) -> None:
        """See :class:`Workload`."""
        self._crash_on_delivery.arm(client, victim)

    def counts(self) -> tuple[int, int]:
        """See :class:`Workload`."""
        return self.history.acknowledged, self.history.unknown

    def delivered(self) -> bool:
        """See :class:`Workload`."""
        return self._checks.delivered()

    async def heal(self) -> None:
        """See :class:`Workload`. Messages of all workloads are waited for."""
        cluster, patient = self._cluster, self._producing[0]
        await cluster.until(lambda: patient.stored_in_the_end, "a message is stored")
        await cluster.until(lambda: not cluster.open_calls(), "every call ends")
        await cluster.until(cluster.all_delivered, "every message is delivered")
        if check_linearizable(self.registers):
            cluster.trace.coverage_mark("linearizability not decided")
        for client_host in self.client_hosts:
            client = self._consuming.get(client_host.name)
            if client is not None and client_host.process is not None:
                client_host.process.run(client.close, client_host)
        await cluster.pass_time(3.0)
