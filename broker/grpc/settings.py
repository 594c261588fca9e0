"""The broker's answer to a client's settings in a Telemetry stream."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from broker.context import BrokerContext
from broker.grpc.access import publishes
from broker.grpc.call import name_of
from broker.grpc.protocol.definition_pb2 import (
    ClientType,
    Code,
    CustomizedBackoff,
    ExponentialBackoff,
    Metric,
    RetryPolicy,
    Settings,
)
from broker.grpc.statuses import BadCallError
from broker.limits import CLIENTS, GRPC
from broker.security.authorize import Access, consume, consume_as
from broker.topics_and_groups import GroupConfig, check_group_name, check_topic_name
from store.message.scheduled_topics import DELAYS_MS

PRODUCERS = {ClientType.PRODUCER}
CONSUMERS = {ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.PULL_CONSUMER}

SEND_ATTEMPTS = 3
_FIRST_RETRY_LEVEL = 3

_PRODUCER_POLICY = RetryPolicy(
    max_attempts=SEND_ATTEMPTS,
    exponential_backoff=ExponentialBackoff(
        initial=Duration(nanos=10_000_000), max=Duration(seconds=1), multiplier=2
    ),
)
"""RocketMQ's backoff: 10 ms, doubled up to a second."""


def answered_settings(context: BrokerContext, given: Settings) -> Settings:
    """The client's settings, completed by the broker. Raises
    :class:`~broker.grpc.statuses.BadCallError` for invalid settings."""
    check_settings(given)
    told = Settings()
    told.CopyFrom(given)
    told.metric.CopyFrom(Metric(on=False))
    if given.client_type in PRODUCERS:
        told.backoff_policy.CopyFrom(_PRODUCER_POLICY)
        told.publishing.max_body_size = context.config.max_message_size
        told.publishing.validate_message_type = True
        return told
    group = name_of(given.subscription.group)
    told.backoff_policy.CopyFrom(_consumer_policy(context.machine.state.groups.get(group)))
    subscription = told.subscription
    subscription.fifo = consumes_in_order(
        context, [name_of(each.topic) for each in given.subscription.subscriptions]
    )
    subscription.receive_batch_size = GRPC.receive_max
    if not subscription.long_polling_timeout.seconds:
        subscription.long_polling_timeout.FromMilliseconds(int(GRPC.long_poll_seconds * 1000))
    return told


def settings_access(settings: Settings) -> Iterable[Access]:
    """The permissions that a client with these settings needs."""
    if settings.client_type in PRODUCERS:
        return publishes(settings.publishing.topics)
    subscription = settings.subscription
    topics = [consume(name_of(each.topic)) for each in subscription.subscriptions]
    return [consume_as(name_of(subscription.group)), *topics]


def check_settings(given: Settings) -> None:
    """Raises :class:`~broker.grpc.statuses.BadCallError` for invalid settings, and
    :class:`~broker.topics_and_groups.NameRefusedError` for a name that is not allowed."""
    if given.client_type not in PRODUCERS | CONSUMERS:
        known = given.client_type in ClientType.values()
        kind = ClientType.Name(given.client_type) if known else given.client_type
        raise BadCallError(Code.UNRECOGNIZED_CLIENT_TYPE, f"clients of type {kind} are not known")
    publishes = given.client_type in PRODUCERS
    if given.WhichOneof("pub_sub") not in ({"publishing", None} if publishes else {"subscription"}):
        raise BadCallError(Code.BAD_REQUEST, "the settings are not those of this type of client")
    topics = list(given.publishing.topics) if publishes else []
    topics += [each.topic for each in given.subscription.subscriptions]
    if len(topics) > CLIENTS.subscriptions_max:
        raise BadCallError(Code.BAD_REQUEST, f"the settings have {len(topics)} topics")
    for topic in topics:
        check_topic_name(name_of(topic))
    if not publishes:
        check_group_name(name_of(given.subscription.group))


def consumes_in_order(context: BrokerContext, topics: list[str]) -> bool:
    """Whether messages of a message group are received one at a time: if a topic allows only FIFO
    messages."""
    found = [context.machine.state.topics.get(topic) for topic in topics]
    return any(topic is not None and topic.message_type == "FIFO" for topic in found)


def _consumer_policy(group: GroupConfig | None) -> RetryPolicy:
    """The retry policy of a group: failed messages become visible after the times of RocketMQ's
    delay levels."""
    times = (group or GroupConfig("")).retries_max
    delays = [Duration(seconds=ms // 1000) for ms in DELAYS_MS[_FIRST_RETRY_LEVEL - 1 :]]
    return RetryPolicy(max_attempts=times + 1, customized_backoff=CustomizedBackoff(next=delays))
