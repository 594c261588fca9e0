"""Makes the two parts of a broker that decide how long messages are kept."""

from __future__ import annotations

from broker.config.dynamic_settings import DynamicSettings
from broker.delivery.message_reader import MessageReader
from broker.group_commit.batcher import Batcher
from broker.maintenance.retention import Needs, Retention
from broker.maintenance.topic_retention import TopicRetention
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.server.environment import Environment
from broker.state.state_machine import BrokerStateMachine
from broker.transactions.coordinator import TransactionCoordinator
from dledger.node.node import Node
from dledger.wire.features import TOPIC_RETENTION
from store.log.retention_policy import RetentionPolicy


def make_retention(
    policy: RetentionPolicy,
    environment: Environment,
    *,
    node: Node,
    machine: BrokerStateMachine,
    batcher: Batcher,
    settings: DynamicSettings,
    scheduled_messages: ScheduledMessageService,
    transactions: TransactionCoordinator,
) -> Retention:
    """The retention of the log."""
    return Retention(
        policy,
        store=node.store,
        machine=machine,
        batcher=batcher,
        settings=settings,
        needs=Needs(
            refill_position=lambda: node.snapshot_sender.needed_position,
            positions=(
                scheduled_messages.oldest_needed_position,
                transactions.oldest_needed_position,
            ),
        ),
        loop=environment.loop,
        wall_clock=environment.wall_clock,
        fail=node.fail,
    )


def make_topic_retention(
    policy: RetentionPolicy,
    environment: Environment,
    *,
    node: Node,
    machine: BrokerStateMachine,
    batcher: Batcher,
    reader: MessageReader,
    settings: DynamicSettings,
) -> TopicRetention:
    """The retention of topics that have a shorter one."""
    return TopicRetention(
        machine=machine,
        reader=reader,
        batcher=batcher,
        known_by_all=lambda: node.features.known_by_all(TOPIC_RETENTION),
        reserved_ms=lambda: settings.reserved_ms(policy.age_ms_max),
        loop=environment.loop,
        wall_clock=environment.wall_clock,
    )
