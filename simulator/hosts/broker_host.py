"""A machine with the shipped broker on it, as ``broker/server/broker_process.py`` assembles it.

Of the process only what touches the world is replaced: clock, files, peers' transport, executors,
random source, and the sockets below the remoting port. There is no HTTP port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from broker.config.node_config import Endpoint, Member, NodeConfig
from broker.remoting.server import RemotingServer
from broker.server.broker import Broker
from broker.server.broker import Environment as BrokerEnvironment
from broker.server.name_server_registration import Registrar
from broker.state.commands import Command, Expire, Proof
from broker.state.recent_entries import RecentEntries
from broker.state.state_machine import BrokerStateMachine
from dledger.node.node import Node
from dledger.node.startup_repair import Prepare
from dledger.node.state_machine import Leadership
from dledger.wire.features import STATE_PROOF
from simulator.engine.disk_executor import executors_of
from simulator.engine.process import Process
from simulator.engine.violation import Violation
from simulator.hosts.host import CLIENT_PORT, DIRECTORY, HTTP_PORT, PEER_PORT, Host
from simulator.hosts.observed_host import GroupConfig
from simulator.hosts.state_digest import StateDigest
from store.index.consume_queue import ConsumeQueues
from store.index.key_index import KeyIndex
from store.index_rebuild import Rebuild
from store.log.entry import Entry
from store.log.retention_policy import RetentionPolicy
from store.replica import ReplicaStore

GROUP = "broker-a"
RECENT_BYTES = 16 << 10
"""Of the newest entries in memory: what lies before them, which is most of a log here, is read."""

PROOF_MS = 400

EXPIRED_SHARE = 0.7
"""Of the log, when a run gives old segments up."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What all brokers of a simulated group share beside the Raft settings."""

    name_servers: Sequence[str]
    flush: str = "sync"
    retention: RetentionPolicy | None = None
    retains: bool = False
    """Old segments go as retention has it, not wherever a run wants the log to begin."""
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000


class ObservedStateMachine(BrokerStateMachine):
    """Tells what is applied, with a digest of the whole state after it."""

    rows_per_file = 24
    """So few that queues have several files."""

    tell_applied: Callable[[Entry, bytes], None]
    tell_leadership: Callable[[Leadership], None]
    tell_restored: Callable[[bytes], None]
    knows_proofs = True
    """False of an earlier program, which would stop at one."""

    def __init__(self, queues: ConsumeQueues, keys: KeyIndex, segment_size: int) -> None:
        super().__init__(queues, keys, segment_size)
        self._recent = RecentEntries(RECENT_BYTES)
        self._digest = StateDigest()

    def restore(self, state: bytes | None) -> None:
        """See :class:`BrokerStateMachine`."""
        super().restore(state)
        self.tell_restored(self.digest())

    def _apply_commands(self, commands: Sequence[Command], position: int) -> Proof | None:
        """See :class:`BrokerStateMachine`."""
        proof = super()._apply_commands(commands, position)
        if proof is not None and not self.knows_proofs:
            raise Violation("a program is given a command that it does not know")
        return proof

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

    def digest(self) -> bytes:
        """A function of the state alone, however it came about."""
        beside = (self._queues.lengths(), self.expired_position, self.applied_end)
        return self._digest.of(self.state, beside)


class ObservedBroker(Broker):
    """The shipped broker on a host that is observed."""

    machine_class = ObservedStateMachine

    def retain(self, log_bytes_max: int) -> None:
        """Retention looks now, as if the log might have no more than so many bytes."""
        retention = self._retention
        policy = retention._policy
        retention._policy = replace(policy, log_bytes_max=log_bytes_max)
        retention._check()
        retention._policy = policy


def members_of(group: GroupConfig) -> dict[str, Member]:
    """Where each broker of a simulated group listens."""
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
    _server: RemotingServer
    _registrar: Registrar

    def _make_node(self, store: ReplicaStore, process: Process) -> Node:
        group, environment, loop = self._group, self._environment, self._loop
        name_servers = tuple(self.settings.name_servers)
        config = NodeConfig(
            group=group.name,
            node=self.name,
            data=DIRECTORY,
            members=members_of(group),
            namesrv=name_servers,
            flush=self.settings.flush,
            transaction_timeout_ms=self.settings.transaction_timeout_ms,
            transaction_check_interval_ms=self.settings.transaction_check_interval_ms,
            segment_size=group.segment_size,
            max_message_size=group.segment_size // 4,
            heartbeat_ms=round(group.raft.heartbeat_seconds * 1000),
            election_timeout_ms=round(group.raft.election_seconds * 1000),
            preferred_leader=group.raft.preferred_leader,
            lease_reads=group.raft.lease_reads,
            proof_ms=PROOF_MS if STATE_PROOF in self.features else 0,
            file_reserved_hours=0,  # clocks are days ahead now and then; what expires is a fault
        )
        rng = environment.streams.stream(f"broker {self.name}")
        transport = self._make_transport(process)
        broker = self.broker = ObservedBroker(
            config,
            store,
            BrokerEnvironment(
                fs=self.fs,
                transport=transport,
                executors=executors_of(self, process, environment.loop, environment.streams),
                loop=loop,
                rng=rng,
                wall_clock=self.clock.wall_ms,
            ),
            self._stops,
            retention=self.settings.retention,
            raft=group.raft,
        )
        machine = broker.context.machine
        assert isinstance(machine, ObservedStateMachine)  # noqa: S101 - as the class says
        self.state_machine = machine
        machine.tell_applied = self._applied
        machine.tell_leadership = self._leadership
        machine.knows_proofs = STATE_PROOF in self.features
        checkpoint = store.recovered.checkpoint
        index = -1 if checkpoint is None else checkpoint.index
        machine.tell_restored = partial(self._restored, index)
        address = config.own.address
        self._server = RemotingServer(loop, address.host, address.port, broker.dispatch)
        self._registrar = Registrar(loop, name_servers, broker.announcement)
        return broker.context.node

    def _make_prepare(self) -> Prepare:
        """See :class:`Host`."""
        return Rebuild(self.fs, DIRECTORY, ObservedStateMachine.rows_per_file).run

    def _expire(self, node: Node) -> None:
        """As retention does: by a command in the log, so that every replica does the same."""
        if node is not self.node or node.failure is not None:
            return
        node.checkpointer.checkpoint()
        batcher, end = self.broker.context.batcher, self.state_machine.applied_end
        if self.settings.retains:
            self.broker.retain(int((1 - EXPIRED_SHARE) * end))
        elif batcher.serving:
            batcher.add_command(Expire(int(EXPIRED_SHARE * end)))

    async def _start_node(self) -> None:
        await self.broker.start()
        await self._server.start()
        self.broker.on_announcement_changed = self._registrar.register_now
        self._registrar.start()

    async def _stop_node(self) -> None:
        self.broker.on_announcement_changed = lambda: None
        await self._registrar.stop()
        await self.broker.stop()
        await self._server.stop()
