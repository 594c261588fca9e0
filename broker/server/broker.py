"""One broker, assembled: a node of the group, the state machine on it, and the ports to clients.

``broker/server/broker_server.py`` opens its data and its ports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import ClassVar

from broker.admin.group_members import client_addresses, member_addresses
from broker.config.dynamic_settings import DynamicSettings
from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from broker.delivery.fetch import Delivery
from broker.delivery.message_lookup import MessageLookup
from broker.delivery.message_reader import MessageReader
from broker.delivery.replica_selection import ReplicaSelection
from broker.group_commit.batcher import Batcher
from broker.ingest.ingest import Ingest
from broker.limits import STATE
from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.maintenance.retention import Needs, Retention
from broker.maintenance.state_proofs import StateProofs
from broker.metrics.broker_metrics import BrokerMetrics, MessageRates
from broker.remoting.access_guard import guarded
from broker.remoting.connected_clients import ConnectedClients
from broker.remoting.connection import Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.forwarder import Forwarder
from broker.remoting.processors.processor_table import (
    SERVED_WHEN_STATE_DIVERGED,
    broker_handlers,
    refuse_wrong_state,
)
from broker.remoting.processors.request_access import ALWAYS_ENFORCED, BROKER_ACCESS
from broker.remoting.protocol.addresses import host_bytes
from broker.remoting.protocol.codes import RequestCode
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.server.access_setup import make_access_control, make_account_changes, server_security
from broker.server.draining import Draining
from broker.server.environment import BrokerLimits, Environment
from broker.server.name_server_registration import Announcement
from broker.state.broker_state import DataVersion
from broker.state.commands import Proof
from broker.state.open_transactions import OpenTransaction
from broker.state.state_machine import BrokerStateMachine, StateMachineListener
from broker.topics_and_groups import TopicConfig, system_topics
from broker.transactions.coordinator import CheckPolicy, TransactionCoordinator
from dledger.config import RaftConfig
from dledger.node.node import Node
from dledger.node.state_machine import Leadership
from dledger.raft.configuration import Configuration
from dledger.wire.features import ACCESS_CONTROL
from store.errors import DamagedError
from store.index_rebuild import rebuild_derived, request_rebuild
from store.io.disk_watermarks import DiskLevel
from store.io.filesystem import Bytes
from store.message.scheduled_topics import SCHEDULED_TOPICS
from store.replica import ReplicaStore

log = logging.getLogger(__name__)


class Broker(StateMachineListener):
    """Serves clients from a replicated log. ``dispatch`` takes their requests."""

    machine_class: ClassVar[type[BrokerStateMachine]] = BrokerStateMachine
    """The state machine; the simulator has one that can be watched."""

    def __init__(
        self,
        config: NodeConfig,
        store: ReplicaStore,
        environment: Environment,
        on_fatal: Callable[[BaseException], None],
        limits: BrokerLimits,
    ) -> None:
        """``on_fatal`` is told why the node stopped by itself; the process must then end."""
        retention = limits.retention or config.retention
        loop = environment.loop
        self._fs = environment.fs
        self._data = config.data
        self._on_fatal = on_fatal
        machine = self.machine_class.open(environment.fs, config.data, config.segment_size)
        machine.add_system_topics(system_topics(config.cluster, config.group))
        machine.listener, machine.log = self, store
        node = Node(
            node=config.node,
            voters=() if config.join else list(config.members),
            store=store,
            transport=environment.make_transport(),
            machine=machine,
            executors=environment.executors,
            loop=loop,
            rng=Random(environment.rng.random()),
            on_fatal=self._failed,
            config=replace(
                limits.raft
                or RaftConfig(
                    checkpoint_seconds=config.checkpoint_seconds,
                    scrub_bytes_per_second=config.scrub_mib_per_second << 20,
                    scrub_pass_seconds=config.scrub_pass_seconds,
                    snapshot_bytes_per_second=config.refill_mib_per_second << 20,
                ),
                heartbeat_seconds=config.heartbeat_ms / 1000,
                election_seconds=config.election_timeout_ms / 1000,
                disk_stall_seconds=config.disk_stall_ms / 1000,
                preferred_leader=config.preferred_leader,
                lease_reads=config.lease_reads,
            ),
            watermarks=retention.watermarks,
            sync_flush=config.flush == "sync",
        )
        batcher = Batcher(
            node=node,
            applied=machine,
            loop=loop,
            wall_clock=environment.wall_clock,
            store_host=host_bytes(*config.own.address),
            segment_size=config.segment_size,
            deduplicate=config.dedup_window_seconds > 0,
        )
        reader = MessageReader(node.checked_reads, machine, leads=lambda: node.serving)
        settings = DynamicSettings(config, machine)
        stats = BrokerMetrics(boot_ms=environment.wall_clock())
        lookup, clients = MessageLookup(machine, reader), ConnectedClients(loop, self._notifies)
        rates = MessageRates(loop, stats, environment.wall_clock)
        scheduled_messages = ScheduledMessageService(
            machine=machine, reader=reader, batcher=batcher, loop=loop, fail=node.fail
        )
        ingest = Ingest(
            config=config,
            settings=settings,
            store_host=host_bytes(*config.own.address),
            batcher=batcher,
            machine=machine,
            reader=reader,
            lookup=lookup,
            scheduled_messages=scheduled_messages,
            topic_metrics=rates.topic_metrics,
            wall_clock=environment.wall_clock,
            rng=environment.rng,
        )
        delivery = Delivery(
            machine=machine,
            reader=reader,
            batcher=batcher,
            consumers=clients,
            lookup=lookup,
            settings=settings,
            replica_selection=ReplicaSelection(config, settings, node),
            rates=rates,
            ensure_group=ingest.auto_creator.ensure_group,
            loop=loop,
        )
        access = make_access_control(config, environment, machine)
        self.context = BrokerContext(
            config=config,
            loop=loop,
            wall_clock=environment.wall_clock,
            rng=environment.rng,
            node=node,
            machine=machine,
            batcher=batcher,
            ingest=ingest,
            reader=reader,
            lookup=lookup,
            delivery=delivery,
            clients=clients,
            settings=settings,
            stats=stats,
            rates=rates,
            scheduled_messages=scheduled_messages,
            transactions=TransactionCoordinator(
                machine=machine,
                lookup=lookup,
                batcher=batcher,
                clients=clients,
                loop=loop,
                rng=Random(environment.rng.random()),
                policy=CheckPolicy(
                    config.transaction_timeout_ms,
                    config.transaction_check_interval_ms,
                    config.transaction_check_max,
                ),
            ),
            proofs=StateProofs(
                node=node,
                machine=machine,
                batcher=batcher,
                loop=loop,
                seconds=config.proof_ms / 1000,
            ),
            access=access,
            accounts=make_account_changes(access, environment, machine, batcher, node.features),
        )
        self._retention = Retention(
            retention,
            store=store,
            machine=machine,
            batcher=batcher,
            settings=settings,
            needs=Needs(
                refill_index=lambda: node.snapshot_sender.needed_from,
                positions=(
                    self.context.scheduled_messages.oldest_needed_position,
                    self.context.transactions.oldest_needed_position,
                ),
            ),
            loop=loop,
            wall_clock=environment.wall_clock,
            fail=node.fail,
        )
        self.handlers = dict(broker_handlers(self.context, self._retention))
        self.dispatch: Handler = dispatch_by_code(self.handlers)
        if access is not None:
            self.dispatch = guarded(self.dispatch, access, BROKER_ACCESS, always=ALWAYS_ENFORCED)
        own_address = str(config.own.address)
        self.forwarder = Forwarder(
            loop,
            own_address,
            self._leader_address,
            self.dispatch,
            security=server_security(config, environment),
        )
        self.handlers[RequestCode.FORWARD] = self.forwarder.serve_forwarded
        self.on_announcement_changed: Callable[[], None] = lambda: None
        """Called when what :meth:`announcement` says has changed."""
        self._announced_topics: tuple[DataVersion, dict[str, dict[str, object]]] | None = None
        """The last registration, by its version, which changes whenever a topic does."""
        self._announced_members: tuple[Configuration, tuple[str, ...]] | None = None
        self._announced_serving = False
        self.draining = Draining(loop, node, self._leads_elsewhere)
        self._addresses = str(config.own.address), str(config.own.http)
        node.health.on_level = self._disk_level_changed
        node.removal.on_change = self._membership_changed
        node.state_divergence.on_wrong = self._state_diverged

    # --- life

    async def start(self) -> None:
        """Recovers the state and joins the group. ``OSError`` if the peers' port is taken."""
        data, store = self.context.config.data, self.context.node.store
        rows_per_file = self.machine_class.rows_per_file
        if rebuild_derived(self._fs, data, store, rows_per_file):
            log.info("made the ConsumeQueues and the key index again from the log")
        node = self.context.node
        machine = self.context.machine
        node.scrubber.derived = DerivedFilesCheck(
            store,
            machine.keys,
            machine.queue,
            unwritable=lambda: request_rebuild(self._fs, data),
        )
        machine.tell_damage(node.checked_reads.suspect_derived)
        await node.start()
        self.context.clients.start()
        self.context.rates.start()
        self._retention.start()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DamagedError):
            # An entry could not be applied, as a derived file is damaged. The content of the log
            # makes that file whole; without the note each start would come to the same entry and
            # end.
            with suppress(OSError):
                request_rebuild(self._fs, self._data)
        self._on_fatal(error)

    async def stop(self) -> None:
        """Refuses pending requests, forgets their waiters, and stops the node in order."""
        self._retention.stop()
        self.context.clients.stop()
        self.context.rates.stop()
        self.context.proofs.stop()
        if self.context.accounts is not None:
            self.context.accounts.stop()
        self.context.scheduled_messages.stop()
        self.context.transactions.stop()
        self.context.delivery.long_polling.close()
        self.context.batcher.close()
        await self.forwarder.close()
        await self.context.node.stop()

    def announcement(self) -> Announcement:
        """The registration at NameServers: broker id 0 is the leader that serves."""
        config, node, state = self.context.config, self.context.node, self.context.machine.state
        configuration = node.core.configuration
        if self._announced_members is None or self._announced_members[0] is not configuration:
            self._announced_members = (configuration, client_addresses(config, configuration))
        address, http_address = self._addresses
        if self._announced_topics is None or self._announced_topics[0] != state.topics_version:
            self._announced_topics = (state.topics_version, self._topic_table())
        return Announcement(
            cluster=config.cluster,
            broker_name=config.group,
            broker_id=0 if node.serving else config.follower_broker_id,
            address=address,
            http_address=http_address,
            term=node.leadership.term,
            data_version={
                "counter": state.topics_version.counter,
                "timestamp": state.topics_version.timestamp_ms,
            },
            topics=self._announced_topics[1],
            members=self._announced_members[1],
            is_member=node.removal.is_member,
        )

    def _leader_address(self) -> str | None:
        """Where the leader takes requests; None while none is known, or its address is not."""
        node, config = self.context.node, self.context.config
        leader = node.leadership.leader
        if leader is None:
            return None
        members = member_addresses(config, node.core.configuration)
        return members[leader].client or None if leader in members else None

    def _leads_elsewhere(self) -> bool:
        return self._leader_address() not in (None, self._addresses[0])

    def _topic_table(self) -> dict[str, dict[str, object]]:
        topics = self.context.machine.state.topics
        return {name: _announced(topic) for name, topic in sorted(topics.items())}

    # --- StateMachineListener

    def messages_arrived(self, topic: str, queue_id: int, rows: Bytes) -> None:
        self.context.delivery.long_polling.arrived(topic, queue_id, rows)
        if self.context.batcher.serving:  # what followers and restarts apply was counted before
            self.context.rates.stored(topic, rows)
        if topic in SCHEDULED_TOPICS:
            self.context.scheduled_messages.arrived(topic, queue_id)

    def transaction_opened(self, offset: int, transaction: OpenTransaction) -> None:
        self.context.transactions.opened(offset, transaction)

    def state_restored(self, digests: bytes) -> None:
        self.context.proofs.restored(digests)

    def proof_applied(self, index: int, proof: Proof, digests: bytes) -> None:
        self.context.proofs.applied(index, proof, digests)

    def access_changed(self, index: int) -> None:
        self.context.node.features.used(ACCESS_CONTROL, index)

    def topics_changed(self) -> None:
        self._announce_if_changed()

    def expired(self, position: int) -> None:
        self.context.node.checkpointer.expire(position)

    def leadership_changed(self, leadership: Leadership) -> None:
        self.context.batcher.leadership_changed(leadership)
        self.context.scheduled_messages.leadership_changed(leadership)
        self.context.transactions.leadership_changed(leadership)
        self.context.proofs.leadership_changed(leadership)
        self.forwarder.leadership_changed(leadership.leader)
        self.draining.leadership_changed(leadership)
        if self.context.accounts is not None:
            self.context.accounts.leadership_changed(serving=leadership.serving)
        if not leadership.serving:
            self.context.delivery.leads_no_more()
        self._announce_if_changed()

    def _announce_if_changed(self) -> None:
        """NameServers take neither topics nor terms from followers, and there are many of both."""
        node, told = self.context.node, self._announced_members
        serving = node.serving
        if (
            serving
            or self._announced_serving
            or told is None
            or told[0] is not node.core.configuration
        ):
            self._announced_serving = serving
            self.on_announcement_changed()

    def _membership_changed(self) -> None:
        self.on_announcement_changed()

    def _state_diverged(self) -> None:
        """Answers to clients may be wrong: they are to go elsewhere."""
        for code in self.handlers:
            if code not in SERVED_WHEN_STATE_DIVERGED:
                self.handlers[code] = refuse_wrong_state
        self.context.delivery.long_polling.close()

    def _disk_level_changed(self, level: DiskLevel) -> None:
        no_room = self.context.node.health.no_room
        self.context.batcher.refuse_messages(no_room if level is DiskLevel.FULL else None)
        if level > DiskLevel.ROOM:
            self._retention.check_soon()

    def _notifies(self, group: str) -> bool:
        settings = self.context.machine.state.groups.get(group)
        return settings is None or settings.notify_ids_changed


def _announced(topic: TopicConfig) -> dict[str, object]:
    """Clients make an object of each queue, and older states have topics with any number."""
    if topic.queues > STATE.queues_max:
        read, write = (min(n, STATE.queues_max) for n in (topic.read_queues, topic.write_queues))
        topic = replace(topic, read_queues=read, write_queues=write)
    return topic.as_json()
