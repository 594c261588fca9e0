"""The assembly of one broker: a node of the group, its state machine, and the flows for clients.

``broker/server/broker_server.py`` opens its data and its ports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import ClassVar

from broker.admin.membership import peer_addresses
from broker.config.dynamic_settings import LOG_LEVEL, DynamicSettings
from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from broker.delivery.message_lookup import MessageLookup
from broker.delivery.message_reader import MessageReader
from broker.delivery.replica_selection import ReplicaSelection
from broker.delivery.waiting_since import WaitingSince
from broker.errors import UnavailableError, WrongStateError
from broker.group_commit.batcher import Batcher
from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.maintenance.state_proofs import StateProofs
from broker.metrics.broker_metrics import BrokerMetrics, MessageRates
from broker.pop.pop import Pop
from broker.quotas.throttle import Throttle
from broker.remoting.access_guard import guarded
from broker.remoting.clients_at_other_members import ClientsAtOtherMembers
from broker.remoting.connected_clients import ConnectedClients
from broker.remoting.connection import Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.forwarder import Forwarder
from broker.remoting.processors.processor_table import (
    ALWAYS_ENFORCED,
    SERVED_WHEN_STATE_DIVERGED,
    broker_handlers,
    refuse_wrong_state,
)
from broker.remoting.protocol.addresses import host_bytes
from broker.remoting.protocol.codes import RequestCode
from broker.scheduled.recalls import Recalls
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.server.access_setup import make_access_control, make_account_changes, server_security
from broker.server.announcements import Announcements
from broker.server.draining import Draining
from broker.server.environment import BrokerLimits, Environment
from broker.server.quota_setup import QuotaSetup
from broker.server.raft_settings import raft_config
from broker.server.retention_setup import make_retention, make_topic_retention
from broker.state.commands import Proof
from broker.state.open_transactions import OpenTransaction
from broker.state.state_machine import BrokerStateMachine
from broker.state.state_machine_listener import StateMachineListener
from broker.topics_and_groups import system_topics
from broker.transactions.coordinator import CheckPolicy, TransactionCoordinator
from dledger.node.executor import result_of
from dledger.node.node import Node
from dledger.node.state_machine import Leadership
from dledger.wire.features import POP, RECALL
from store.errors import DamagedError
from store.index.queue_tails import amend_tails
from store.index_rebuild import rebuild_derived, request_rebuild
from store.io.disk_watermarks import DiskLevel
from store.message.batch import Batch
from store.replica import ReplicaStore

log = logging.getLogger(__name__)


class Broker(StateMachineListener):
    """Serves clients from a replicated log. ``dispatch`` takes remoting requests."""

    machine_class: ClassVar[type[BrokerStateMachine]] = BrokerStateMachine
    """The class of the state machine; the simulator has its own."""

    def __init__(
        self,
        config: NodeConfig,
        store: ReplicaStore,
        environment: Environment,
        on_fatal: Callable[[BaseException], None],
        limits: BrokerLimits,
    ) -> None:
        """``on_fatal`` gets the reason if the node stops by itself. The process must then end."""
        retention, loop = limits.retention or config.retention, environment.loop
        self._fs = environment.fs
        self._opener = environment.opener
        self._request_rebuild = partial(request_rebuild, environment.fs, config.data)
        self._on_fatal = on_fatal
        self._set_log_level = environment.set_log_level
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
            config=raft_config(config, limits),
            watermarks=retention.watermarks,
            sync_flush=config.flush == "sync",
            clock=environment.clock,
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
        ingest = environment.make_ingest(
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
            loop=loop,
        )
        delivery = environment.make_delivery(
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
            clock=environment.clock,
        )
        pop = Pop(
            machine=machine,
            reader=reader,
            batcher=batcher,
            replicas=delivery.replica_selection,
            rates=rates,
            ensure_group=ingest.auto_creator.ensure_group,
            known_by_all=partial(node.features.known_by_all, POP),
            broker_name=config.group,
            loop=loop,
            wall_clock=environment.wall_clock,
            rng=Random(environment.rng.random()),
        )
        access = make_access_control(config, environment, machine)
        security = server_security(config, environment)
        self.context = BrokerContext(
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
            waiting_since=WaitingSince(loop, lookup, environment.wall_clock),
            pop=pop,
            clients=clients,
            elsewhere=ClientsAtOtherMembers(
                loop,
                clients,
                lambda: peer_addresses(config, node.core.configuration),
                security=security,
            ),
            settings=settings,
            stats=stats,
            rates=rates,
            scheduled_messages=scheduled_messages,
            recalls=Recalls(
                machine=machine,
                batcher=batcher,
                lookup=lookup,
                scheduled_messages=scheduled_messages,
                known_by_all=partial(node.features.known_by_all, RECALL),
                broker_name=config.group,
            ),
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
            throttle=(throttle := Throttle(loop.time)),
            topic_retention=make_topic_retention(
                retention,
                environment,
                node=node,
                machine=machine,
                batcher=batcher,
                reader=reader,
                settings=settings,
            ),
        )
        self._quotas = QuotaSetup(throttle, (ingest, delivery, pop))
        self._retention = make_retention(
            retention,
            environment,
            node=node,
            machine=machine,
            batcher=batcher,
            settings=settings,
            scheduled_messages=scheduled_messages,
            transactions=self.context.transactions,
        )
        self.handlers, needs = broker_handlers(self.context, self._retention)
        self.dispatch: Handler = dispatch_by_code(self.handlers)
        if access is not None:
            self.dispatch = guarded(self.dispatch, access, needs, always=ALWAYS_ENFORCED)
        self.announcements = Announcements(config, node, machine)
        self.forwarder = Forwarder(
            loop,
            str(config.own.address),
            self.announcements.leader_address,
            self.dispatch,
            security=security,
        )
        self.on_leadership: list[Callable[[], None]] = []
        """Called at each change of leadership, after the parts of the broker."""
        self.serve_brokers(
            {
                RequestCode.FORWARD: self.forwarder.serve_forwarded,
                RequestCode.PASS_TO_CLIENT: self.context.elsewhere.serve,
            }
        )
        self.draining = Draining(loop, node, self.announcements.leads_elsewhere)
        self.forwarder.on_broker = self.draining.clients_changed
        node.health.on_level = self._disk_level_changed
        node.health.on_refusal = batcher.refuse_messages
        node.removal.on_change = self.announcements.membership_changed
        node.state_divergence.on_wrong = self._state_diverged

    def serve_brokers(self, handlers: Mapping[int, Handler]) -> None:
        """Serves request codes that only other brokers send: without a row they are for admins."""
        for code, handler in handlers.items():
            self.handlers[code] = self.forwarder.from_brokers(handler)

    # --- life

    async def start(self) -> None:
        """Recovers the state and joins. Raises ``OSError`` if the peers' port is taken."""
        node, machine = self.context.node, self.context.machine
        data, store = self.context.config.data, node.store
        rebuild = partial(rebuild_derived, self._fs, data, store, machine.rows_per_file)
        if await result_of(self._opener, rebuild):
            log.info("rebuilt the ConsumeQueues and the key index from the log")
        save_tails = partial(amend_tails, self._fs, f"{data}/state")
        unwritable = self._request_rebuild
        node.scrubber.compare_derived(
            lambda: DerivedFilesCheck(
                store, machine.keys, machine.queue, save_tails=save_tails, unwritable=unwritable
            )
        )
        machine.tell_damage(node.checked_reads.suspect_derived)
        await node.start()
        self.context.clients.start()
        self.context.rates.start()
        self._retention.start()
        self.context.topic_retention.start()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DamagedError):
            # A derived file is damaged, so an entry could not be applied. The log can make the
            # file again. Without the note each start would end at that entry.
            with suppress(OSError):
                self._request_rebuild()
        self._on_fatal(error)

    async def stop(self) -> None:
        """Refuses pending requests, drops their waiters, and stops the node."""
        self._retention.stop()
        self.context.topic_retention.stop()
        self.context.clients.stop()
        self.context.rates.stop()
        self.context.proofs.stop()
        if self.context.accounts is not None:
            self.context.accounts.stop()
        self.context.scheduled_messages.stop()
        self.context.transactions.stop()
        self.context.delivery.long_polling.close()
        self.context.batcher.close()
        self.context.pop.refuse_all(UnavailableError("the broker stops"))
        await self.context.elsewhere.close()
        await self.forwarder.close()
        await self.context.node.stop()

    # --- StateMachineListener

    def messages_arrived(self, batch: Batch) -> None:
        self.context.delivery.long_polling.batch_arrived(batch)
        self.context.scheduled_messages.batch_arrived(batch)
        self.context.pop.held.batch_arrived(batch)
        if self.context.batcher.serving:  # others apply messages that were counted before
            self.context.rates.stored(batch)

    def transaction_opened(self, offset: int, transaction: OpenTransaction) -> None:
        self.context.transactions.opened(offset, transaction)

    def state_restored(self, digests: bytes) -> None:
        self.expired(self.context.machine.expired_position)  # the checkpoint may be the leader's
        self.context.proofs.restored(digests)
        self._quotas.restored()
        for name in self.context.machine.state.settings:
            self.setting_changed(name)

    def proof_applied(self, index: int, proof: Proof, digests: bytes) -> None:
        self.context.proofs.applied(index, proof, digests)

    def feature_used(self, feature: str, index: int) -> None:
        self.context.node.features.used(feature, index)

    def topics_changed(self) -> None:
        self.announcements.refresh()

    def setting_changed(self, name: str) -> None:
        self._quotas.setting_changed(name, self.context.machine.state.settings[name])
        if name == LOG_LEVEL:
            level = self.context.settings.log_level
            self._set_log_level(level)
            log.info("the log level of the group is used: %(log_level)s", {"log_level": level})

    def expired(self, position: int) -> None:
        self.context.node.checkpointer.expire(position)

    def leadership_changed(self, leadership: Leadership) -> None:
        self.context.batcher.leadership_changed(leadership)
        self.context.scheduled_messages.leadership_changed(leadership)
        self.context.transactions.leadership_changed(leadership)
        self.context.pop.leadership_changed(leadership)
        self.context.proofs.leadership_changed(leadership)
        self.forwarder.leadership_changed()
        self.draining.leadership_changed(leadership)
        for told in self.on_leadership:
            told()
        if self.context.accounts is not None:
            self.context.accounts.leadership_changed(serving=leadership.serving)
        if not leadership.serving:
            self.context.delivery.leads_no_more()
            self._quotas.leads_no_more()
        self.announcements.refresh()

    def _state_diverged(self) -> None:
        """Refuses clients, because answers may be wrong: they must go to another node."""
        for code in self.handlers:
            if code not in SERVED_WHEN_STATE_DIVERGED:
                self.handlers[code] = refuse_wrong_state
        self.context.delivery.long_polling.close()
        self.context.pop.refuse_all(WrongStateError())

    def _disk_level_changed(self, level: DiskLevel) -> None:
        if level > DiskLevel.ROOM:
            self._retention.check_soon()

    def _notifies(self, group: str) -> bool:
        settings = self.context.machine.state.groups.get(group)
        return settings is None or settings.notify_ids_changed
