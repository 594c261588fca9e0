"""A machine with the shipped broker on it: opened, assembled and restarted by the shipped code.

Only its environment is replaced: clock, files, peers' transport, executors, random numbers, and the
sockets below the remoting port. There is no HTTP port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.config.security_config import ENFORCING, SECURITY_OFF, SecurityConfig
from broker.errors import UnavailableError
from broker.security.cluster_secrets import ClusterSecrets
from broker.server.broker import Broker
from broker.server.broker_server import open_broker
from broker.server.environment import BrokerLimits
from broker.server.environment import Environment as BrokerEnvironment
from broker.state.command_features import FEATURE_OF
from broker.state.commands import Command, Expire, Proof
from broker.state.queue_expiry import QueueFirsts
from broker.state.recent_entries import RecentEntries
from broker.state.state_machine import BrokerStateMachine
from dledger.node.node import Node
from dledger.node.service import Service
from dledger.node.state_machine import Leadership
from dledger.wire.endpoint import Endpoint
from dledger.wire.features import FEATURES, POP, RECALL, STATE_PROOF, TOPIC_RETENTION
from simulator.engine.disk_executor import ImmediateExecutor, executors_of
from simulator.engine.violation import Violation
from simulator.hosts.disk_host import DIRECTORY
from simulator.hosts.host import (
    CLIENT_PORT,
    HTTP_PORT,
    INDEX_ROWS_PER_FILE,
    MIN_FREE_BYTES,
    PEER_PORT,
    Host,
)
from simulator.hosts.observed_host import GroupConfig
from simulator.hosts.state_digest import StateDigest
from store.index.block_seals import ROW_SIZE
from store.index.consume_queues import ConsumeQueues
from store.index.key_index import KeyIndex
from store.log.entry import Entry
from store.log.retention_policy import RetentionPolicy

GROUP = "broker-a"
RECENT_BYTES = 16 << 10
"""Size of the entry cache. Older entries, most of a log here, are read from the disk."""

PROOF_MS = 400

TOPIC_RETENTION_MS = 1_000

ACCESS_CONTROLLED = SecurityConfig(directory="/security", access_control=ENFORCING)

EXPIRED_SHARE = 0.7
"""The share of the log that expires when a run expires old segments."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings that all brokers of a simulated group share, beside the Raft settings."""

    name_servers: Sequence[str] = ()
    flush: str = "sync"
    retention: RetentionPolicy | None = None
    retains: bool = False
    """Retention removes old segments, and not faults that choose where the log begins."""
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    secrets: ClusterSecrets | None = None
    """If there are any, access control is enforced."""
    trimmed_topic: str = ""
    """This topic keeps its messages for :data:`TOPIC_RETENTION_MS`: faults that would choose where
    the log begins have its leader look, in turn."""


class ObservedStateMachine(BrokerStateMachine):
    """Reports each applied entry with a digest of the whole state after it."""

    rows_per_file = 24
    """Few, so that queues have several files."""

    tell_applied: Callable[[Entry, bytes], None]
    tell_leadership: Callable[[Leadership], None]
    tell_restored: Callable[[bytes], None]
    features: Collection[str] = FEATURES
    """An older program has fewer features, and stops at a command that it does not know."""

    def __init__(self, queues: ConsumeQueues, keys: KeyIndex, segment_size: int) -> None:
        super().__init__(queues, keys, segment_size)
        self._recent = RecentEntries(RECENT_BYTES)
        self._digest = StateDigest()

    def restore(self, state: bytes | None) -> None:
        """See :class:`BrokerStateMachine`."""
        super().restore(state)
        self.tell_restored(self.digest())

    def _apply_commands(
        self, commands: Sequence[Command], entry: Entry, expired: Iterator[QueueFirsts]
    ) -> Proof | None:
        """See :class:`BrokerStateMachine`."""
        if len(self.features) < len(FEATURES):
            for each in commands:
                feature = FEATURE_OF.get(type(each))
                if feature is not None and feature not in self.features:
                    raise Violation("a program is given a command that it does not know")
        return super()._apply_commands(commands, entry, expired)

    def apply(self, entry: Entry) -> None:
        """See :class:`BrokerStateMachine`."""
        super().apply(entry)
        self.tell_applied(entry, self.digest())

    def leadership_changed(self, leadership: Leadership) -> None:
        """See :class:`BrokerStateMachine`."""
        self.tell_leadership(leadership)
        super().leadership_changed(leadership)

    def queue_lengths(self) -> list[tuple[str, int, int, int]]:
        """Topic, queue id, first and end offset of every queue, sorted."""
        return sorted(self._queues.lengths())

    def rows_needed(self) -> list[tuple[str, int]]:
        """The file with the last row of each queue that has any, and its size at least."""
        needed = []
        for queue in self._queues.all():
            if queue.first_offset < queue.flushed_end:
                path, byte = queue.locate(queue.flushed_end - 1)
                needed.append((path, byte + ROW_SIZE))
        return needed

    def digest(self) -> bytes:
        """A digest of the state. Equal states have equal digests."""
        beside = (self._queues.lengths(), self.expired_position, self.applied_end)
        return self._digest.of(self.state, beside)


class ObservedBroker(Broker):
    """The shipped broker on a host that is observed."""

    machine_class = ObservedStateMachine

    def retain(self, log_bytes_max: int) -> None:
        """Runs retention now, as if the log had this limit of bytes."""
        retention = self._retention
        policy = retention._policy
        retention._policy = replace(policy, log_bytes_max=log_bytes_max)
        retention._check()
        retention._policy = policy

    def trim(self, topic: str) -> None:
        """From now on the topic keeps its messages for a short time. The leader trims it now."""
        retention, batcher = self.context.topic_retention, self.context.batcher
        known = batcher.topic(topic) if batcher.serving else None
        if known is not None and not known.retention_ms:
            with suppress(UnavailableError):
                batcher.add_command(retention.command(topic, TOPIC_RETENTION_MS))
        retention.look()


def members_of(group: GroupConfig) -> dict[str, Member]:
    """The addresses of each broker of a simulated group."""
    return {
        name: Member(
            peer=Endpoint(group.ip(name), PEER_PORT),
            address=Endpoint(group.ip(name), CLIENT_PORT),
            http=Endpoint(group.ip(name), HTTP_PORT),
        )
        for name in group.voters
    }


class BrokerHost(Host):
    """See the module."""

    settings: BrokerSettings
    broker: ObservedBroker
    state_machine: ObservedStateMachine
    _trims = True
    """Whether an expiry may give a topic a short retention."""

    async def _open_service(self) -> tuple[Service, Node]:
        """See :class:`Host`."""
        assert self.process is not None  # noqa: S101 - it is an event of it
        environment, group = self._environment, self._group
        executors, close = executors_of(self, self.process, environment.loop, environment.streams)
        server = await open_broker(
            self._config(),
            BrokerEnvironment(
                fs=self.fs,
                make_transport=partial(self._make_transport, self.process),
                executors=executors,
                loop=self._loop,
                rng=environment.streams.stream(f"broker {self.name}"),
                wall_clock=self.clock.wall_ms,
                clock=self._loop.time,
                new_incarnation=self._new_incarnation,
                on_hole=self._has_hole,
                close=close,
                opening=ImmediateExecutor(),
                secrets=self.settings.secrets,
            ),
            BrokerLimits(
                raft=group.raft,
                retention=self.settings.retention,
                min_free_bytes=MIN_FREE_BYTES,
                index_rows_per_file=INDEX_ROWS_PER_FILE,
            ),
            ObservedBroker,
        )
        self.broker = server.broker
        node, machine = server.broker.context.node, server.broker.context.machine
        assert isinstance(machine, ObservedStateMachine)  # noqa: S101 - as the class says
        self.state_machine = machine
        machine.tell_applied = self._applied
        machine.tell_leadership = self._leadership
        machine.features = self.features
        if POP not in self.features:
            server.broker.context.pop.refuse_all(UnavailableError("an earlier program"))
        if RECALL not in self.features:
            server.broker.context.recalls._known_by_all = lambda: False
        checkpoint = node.store.recovered.checkpoint
        index = -1 if checkpoint is None else checkpoint.index
        machine.tell_restored = partial(self._machine_restored, index)
        return server, node

    def keeps_all(self) -> bool:
        """See :class:`Host`."""
        self._trims = False  # an expiry may still run
        context = self.broker.context
        topics = context.machine.state.topics.items()
        found = [name for name, topic in topics if topic.retention_ms]
        for name in found if context.batcher.serving else ():
            known = context.batcher.topic(name)
            if known is not None and known.retention_ms:
                with suppress(UnavailableError):  # the features of a member are not known yet
                    context.batcher.add_command(context.topic_retention.command(name, 0))
        return not found

    def _machine_restored(self, index: int, digest: bytes) -> None:
        """Checks that without damage the rows of the checkpoint are there."""
        if not (self.damaged or self.damaged_parts or self._disk_failed):
            files = self.fs.files()
            for path, size in self.state_machine.rows_needed():
                if path not in files or len(self.fs.visible_bytes(path)) < size:
                    raise Violation(f"{self.name}: rows of {path} are missing")
        self._restored(index, digest)

    def _config(self) -> NodeConfig:
        group, settings = self._group, self.settings
        return NodeConfig(
            group=group.name,
            node=self.name,
            data=DIRECTORY,
            members=members_of(group),
            namesrv=tuple(settings.name_servers),
            flush=settings.flush,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            transaction_check_interval_ms=settings.transaction_check_interval_ms,
            segment_size=group.segment_size,
            max_message_size=group.segment_size // 4,
            heartbeat_ms=round(group.raft.heartbeat_seconds * 1000),
            election_timeout_ms=round(group.raft.election_seconds * 1000),
            preferred_leader=group.raft.preferred_leader,
            drain_seconds=1,
            lease_reads=group.raft.lease_reads,
            proof_ms=PROOF_MS if STATE_PROOF in self.features else 0,
            security=SECURITY_OFF if settings.secrets is None else ACCESS_CONTROLLED,
            file_reserved_hours=0,  # clocks may be days ahead; faults decide what expires
        )

    def _expire(self, node: Node) -> None:
        """Expires as retention does, by a command in the log, so every replica does the same."""
        if node is not self.node or node.failure is not None:
            return
        node.checkpointer.checkpoint()
        batcher, end = self.broker.context.batcher, self.state_machine.applied_end
        if self.settings.retains:
            self.broker.retain(int((1 - EXPIRED_SHARE) * end))
        elif self.settings.trimmed_topic and node.applied_index % 2:
            if self._trims and TOPIC_RETENTION in self.features:  # not in an earlier program
                self.broker.trim(self.settings.trimmed_topic)
        elif batcher.serving:
            batcher.add_command(Expire(int(EXPIRED_SHARE * end)))
