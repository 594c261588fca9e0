"""The parts of one broker process that a request handler can reach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from broker.config.dynamic_settings import DynamicSettings
from broker.config.node_config import NodeConfig
from broker.delivery.fetch import Delivery
from broker.delivery.message_lookup import MessageLookup
from broker.delivery.message_reader import MessageReader
from broker.delivery.offsets import Offsets
from broker.delivery.waiting_since import WaitingSince
from broker.group_commit.batcher import Batcher
from broker.ingest.ingest import Ingest
from broker.maintenance.account_changes import AccountChanges
from broker.maintenance.state_proofs import StateProofs
from broker.maintenance.topic_retention import TopicRetention
from broker.metrics.broker_metrics import BrokerMetrics, MessageRates
from broker.pop.pop import Pop
from broker.quotas.throttle import Throttle
from broker.remoting.clients_at_other_members import ClientsAtOtherMembers
from broker.remoting.connected_clients import ConnectedClients
from broker.remoting.protocol.addresses import host_bytes
from broker.scheduled.recalls import Recalls
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.security.access_control import AccessControl
from broker.state.state_machine import BrokerStateMachine
from broker.transactions.coordinator import TransactionCoordinator
from dledger.node.node import Node


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The parts of one broker. ``wall_clock`` gives milliseconds since 1970."""

    loop: asyncio.AbstractEventLoop
    wall_clock: Callable[[], int]
    rng: Random
    node: Node
    machine: BrokerStateMachine
    batcher: Batcher
    ingest: Ingest
    reader: MessageReader
    lookup: MessageLookup
    delivery: Delivery
    waiting_since: WaitingSince
    pop: Pop
    clients: ConnectedClients
    elsewhere: ClientsAtOtherMembers
    settings: DynamicSettings
    stats: BrokerMetrics
    rates: MessageRates
    scheduled_messages: ScheduledMessageService
    recalls: Recalls
    transactions: TransactionCoordinator
    proofs: StateProofs
    access: AccessControl | None
    """None where access control is off."""
    accounts: AccountChanges | None
    """Likewise."""
    topic_retention: TopicRetention
    throttle: Throttle

    @property
    def config(self) -> NodeConfig:
        """``node.toml`` as last read."""
        return self.settings.config

    @property
    def offsets(self) -> Offsets:
        """What groups have consumed, and what queues hold."""
        return Offsets(
            self.machine,
            self.reader,
            self.lookup,
            self.batcher,
            self.delivery,
            self.settings,
            self.node.reads,
            self.ingest.auto_creator.ensure_group,
            self.clients.consumers.__contains__,
        )

    @property
    def store_host(self) -> bytes:
        """This node's address as records hold it: 4 bytes of IPv4, the port as i32."""
        return host_bytes(*self.config.own.address)
