"""A whole cluster: brokers, a NameServer, producers, consumers, and clients that ask for offsets.

Everything in it is the shipped code but for clock, files, network, executors and chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from broker.client.config import ConsumerConfig
from dledger.config import RaftConfig
from simulator.engine.random_streams import CountingRandom
from simulator.faults.crash_on_delivery import CrashOnDelivery
from simulator.faults.injector import Fault
from simulator.faults.kinds import BROKER_FAULTS, DRAWN_FOR_BROKERS
from simulator.hosts.broker_host import BrokerHost, BrokerSettings
from simulator.hosts.client_host import ClientHost
from simulator.hosts.host import Host
from simulator.invariants import Invariant, SeenConfigurations, raft_invariants
from simulator.invariants.broker.derived_files import DerivedFilesSound
from simulator.invariants.broker.linearizable_registers import check_linearizable
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.message_order import Ordering
from simulator.invariants.broker.name_server_routes import NameServerRoutes, NameServerTables
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.invariants.broker.state_proof import StateProofs
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.workload.consumer import CONFIG as CONSUMER_CONFIG
from simulator.workload.consumer import ConsumingClient
from simulator.workload.history import History
from simulator.workload.name_server import CheckedNameServer
from simulator.workload.producer import CONFIG as PRODUCER_CONFIG
from simulator.workload.producer import ProducingClient
from simulator.workload.registers import RegisterClient, RegisterHistory
from simulator.worlds.raft_cluster import Cluster

NAME_SERVER = ("10.0.0.200", 9876)
TOPICS = ("orders", "bills")
GROUP = "readers"

EARLIER_VERSION_SHARE = 0.1
"""Of the runs: in those one member has an earlier program until it is started anew."""


class BrokerCluster(Cluster):
    """See the module."""

    faults: ClassVar[Mapping[str, Fault]] = BROKER_FAULTS
    drawn_faults: ClassVar[Sequence[str]] = DRAWN_FOR_BROKERS
    segment_sizes: ClassVar[Sequence[int]] = (4_096, 20_480, 102_400)

    reads_at_followers: ClassVar[bool] = False
    client_pauses: ClassVar[Sequence[float]] = (0.15, 0.3, 0.6)
    """The longest pauses between two requests of a producer, in seconds; one is drawn for a run."""
    patient_pauses: ClassVar[float] = 1.0
    """Those of the patient producer are so many times as long."""
    client_bursts: ClassVar[Sequence[int]] = (1,)
    """How many requests the impatient producer sends at the same instant; drawn each time."""
    register_pauses: ClassVar[float] = 2.0
    """The pauses of those who ask for offsets and topics are so many times as long."""
    register_bursts: ClassVar[Sequence[int]] = (1,)
    """For how many offsets and topics a client asks at the same instant; likewise."""
    impatience: ClassVar[Sequence[float]] = (PRODUCER_CONFIG.request_seconds,)
    """Seconds after which the impatient producer sends a request again; one is drawn for a run."""
    queues_per_topic: ClassVar[int] = PRODUCER_CONFIG.default_queues
    """Of the topics that the producers make."""
    consumer_config: ClassVar[ConsumerConfig] = CONSUMER_CONFIG
    heartbeats: ClassVar[Sequence[float]] = (0.1, 0.2)
    """Seconds between two heartbeats of a leader; an election takes six times as long."""
    scrub_passes: ClassVar[Sequence[float]] = (2.0, 4.0)
    """Seconds between two passes over the log that look for damage at rest; likewise."""

    added_pauses: ClassVar[float] = 1.0
    """The pauses of clients that a world adds to these are so many times as long."""
    target_clients: ClassVar[Sequence[str]] = ("p0", "p1", "c0", "c1", "r0", "r1")
    hosts: Sequence[BrokerHost]

    def _raft_config(self, rng: CountingRandom) -> RaftConfig:
        heartbeat = rng.choice(self.heartbeats)
        return replace(
            super()._raft_config(rng),
            heartbeat_seconds=heartbeat,
            election_seconds=6 * heartbeat,
            scrub_pass_seconds=rng.choice(self.scrub_passes),
        )

    def _make_hosts(self) -> Sequence[BrokerHost]:
        self.name_servers = ":".join(map(str, NAME_SERVER))
        settings = BrokerSettings(name_servers=[self.name_servers])
        hosts = []
        for name in self.group.voters:
            host = BrokerHost(
                name, group=self.group, environment=self.environment, ended=self._process_ended
            )
            host.settings = settings
            hosts.append(host)
        rng = self.streams.stream("earlier programs")
        if rng.random() < EARLIER_VERSION_SHARE:
            rng.choice(hosts).features = ()
            self.trace.coverage_mark("member of an earlier program")
        return hosts

    @property
    def members_away_max(self) -> int:
        """See :class:`Cluster`. What clients were told is looked for on a majority of the hosts."""
        return 1

    def _make_clients(self, rng: CountingRandom) -> None:
        self.history = self._make_history()
        self.registers = RegisterHistory(self.streams.stream("offsets set back"))
        pause_max = rng.choice(self.client_pauses)
        impatience = rng.choice(self.impatience) if len(self.impatience) > 1 else None
        patient = replace(PRODUCER_CONFIG, default_queues=self.queues_per_topic)
        hasty = replace(patient, request_seconds=impatience or PRODUCER_CONFIG.request_seconds)
        self._producing = [
            ProducingClient(
                self.name_servers,
                TOPICS,
                self.history,
                self.streams.stream(f"producer {place}"),
                pause_max=pause_max if place else self.patient_pauses * pause_max,
                patient=place == 0,
                bursts=self.client_bursts,
                config=hasty if place else patient,
            )
            for place in range(2)
        ]
        self._consuming = [
            ConsumingClient(
                self.name_servers,
                GROUP,
                TOPICS,
                self.history,
                self.streams.stream(f"consumer {place}"),
                config=self.consumer_config,
            )
            for place in range(2)
        ]
        self._asking = [
            RegisterClient(
                self.name_servers,
                TOPICS[0],
                self.registers,
                self.streams.stream(f"registers {place}"),
                pause_max=self.register_pauses * pause_max,
                at_followers=self.reads_at_followers,
                bursts=self.register_bursts,
                fills=place == 0,
            )
            for place in range(2)
        ]
        self._name_service: CheckedNameServer | None = None
        self._register_clients = {f"r{place}": each for place, each in enumerate(self._asking)}
        self.crash_on_delivery = CrashOnDelivery(self)
        self.history.listeners.append(self.crash_on_delivery)
        self.name_server = ClientHost("ns", NAME_SERVER[0], self.environment, self._serve_names)
        mains = [
            *((f"p{place}", each.main) for place, each in enumerate(self._producing)),
            *((f"c{place}", each.main) for place, each in enumerate(self._consuming)),
            *((f"r{place}", each.main) for place, each in enumerate(self._asking)),
        ]
        self.clients = [
            ClientHost(name, f"10.0.1.{place}", self.environment, main, self._client_ended)
            for place, (name, main) in enumerate(mains, 1)
        ]

    def _make_history(self) -> History:
        return History(self.trace.note)

    def _make_invariants(self) -> Sequence[Invariant]:
        self.stored = StoredMessages(self.hosts, TOPICS)
        self.skipped = NothingSkipped(GROUP)
        content = MessageContentKept(TOPICS)
        self.history.listeners += [self.stored, content, Ordering(), self.skipped]
        return [
            *raft_invariants(self.hosts, SeenConfigurations(self.group.voters)),
            self.stored,
            content,
            self.skipped,
            DerivedFilesSound(),
            NameServerRoutes(
                self.group.name,
                hosts=self.hosts,
                name_server=self.name_server,
                answering=self.names_known,
                network=self.network,
                topics=TOPICS,
            ),
            StateProofs(),
        ]

    async def _serve_names(self, client_host: ClientHost) -> None:
        self._name_service = CheckedNameServer(client_host, *NAME_SERVER)
        await self._name_service.start()

    def names_known(self) -> NameServerTables | None:
        """What the NameServer answers from."""
        return None if self._name_service is None else self._name_service.routes

    def client_hosts_named(self, name: str) -> Sequence[ClientHost]:
        """See :class:`Cluster`."""
        return [each for each in (self.name_server, *self.clients) if each.name == name]

    def ask_at_once(self, host: Host, is_write: bool) -> None:
        """See :class:`Cluster`."""
        address = host.addresses[1]
        for client_host in self.clients:
            asker = self._register_clients.get(client_host.name)
            if asker is not None and client_host.process is not None:
                client_host.process.run(asker.ask_at_once, client_host, address, is_write)

    def crash_given(self, client: str, victim: str) -> None:
        """See :class:`Cluster`."""
        self.crash_on_delivery.arm(client, victim)

    def _client_ended(self, client_host: ClientHost) -> None:
        self.history.client_ended(client_host.name)
        self.registers.client_ended(client_host.name)

    # --- its clients

    def _start_clients(self) -> None:
        self.name_server.start()
        for client_host in self.clients:
            client_host.start()

    def _stop_clients(self) -> None:
        for producer in self._producing:
            producer.stop()
        for asker in self._asking:
            asker.stop()
        self.crash_on_delivery.disarm()

    def _clients_hear_of(self, host: Host) -> None:
        """Their connections break, and that is how they hear of it."""

    def _open_calls(self) -> int:
        return len(self.history.open) + len(self.registers.open)

    def _client_counts(self) -> tuple[int, int]:
        return self.history.acknowledged, self.history.unknown

    async def _heal_clients(self) -> None:
        for client_host in (self.name_server, *self.clients):
            client_host.resume()
            client_host.start()
        patient = self._producing[0]
        await self.until(lambda: patient.stored_in_the_end, "a message is stored")
        await self.until(lambda: not self._open_calls(), "every call ends")
        await self.until(self._all_delivered, "every message is delivered")
        undecided = check_linearizable(self.registers)
        if undecided:
            self.trace.coverage_mark("linearizability not decided")
        for client_host, client in zip(self.clients[2:4], self._consuming, strict=True):
            if client_host.process is not None:
                client_host.process.run(client.close, client_host)
        await self.pass_time(3.0)

    def _all_delivered(self) -> bool:
        ends = self.stored.ends
        return all(
            self.skipped.reaches(*queue, end) for queue, end in ends.items() if queue[0] in TOPICS
        )

    def switch_off(self) -> None:
        """See :class:`Cluster`."""
        for client_host in (self.name_server, *self.clients):
            client_host.switch_off()
        super().switch_off()
