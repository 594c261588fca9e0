"""The use of a broker by clients: messages in and out, lag of groups, connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import chain, islice
from typing import TypeVar

from broker.admin.consumer_groups import ConsumerGroups, waiting_places
from broker.admin.turns import Turn
from broker.context import BrokerContext
from broker.delivery.store_times import Place
from broker.limits import METRICS
from broker.metrics.topic_metrics import Meters, Totals
from broker.prometheus import catalog
from broker.prometheus.metric import OTHER, Labels, Reading, bounded, single
from broker.topics_and_groups import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS

_SYSTEM_GROUP_PREFIX = "cid_rmq_sys_"
_SYSTEM = frozenset(SYSTEM_TOPICS)

K = TypeVar("K", bound=Hashable)


def message_readings(context: BrokerContext) -> Iterator[Reading]:
    """Counters and gauges that need no look at queues."""
    topics = context.rates.topic_metrics
    put = list(_series(topics.put, OTHER))
    got = list(_series(topics.got, (OTHER, OTHER)))
    yield Reading(catalog.MESSAGES_IN, [(_topic(topic), all_.messages) for topic, all_ in put])
    yield Reading(catalog.THROUGHPUT_IN, [(_topic(topic), all_.bytes) for topic, all_ in put])
    yield Reading(catalog.MESSAGES_OUT, [(_pair(*key), all_.messages) for key, all_ in got])
    yield Reading(catalog.THROUGHPUT_OUT, [(_pair(*key), all_.bytes) for key, all_ in got])
    back = _series(topics.sent_back, (OTHER, OTHER))
    yield Reading(catalog.SENT_BACK, [(key, all_.messages) for key, all_ in back])
    dead = _series(topics.dead, OTHER)
    yield Reading(catalog.SEND_TO_DLQ, [((group,), all_.messages) for group, all_ in dead])
    stats, state = context.stats, context.machine.state
    yield Reading(
        catalog.PULLS, ((("found",), stats.pulls_found), (("empty",), stats.pulls_missed))
    )
    yield single(catalog.PULL_SECONDS, context.delivery.fetch_seconds)
    yield single(catalog.TOPICS, len(state.topics))
    yield single(catalog.GROUPS, len(state.groups))
    yield single(catalog.PENDING_BYTES, context.batcher.pending_bytes)
    yield single(catalog.HELD_PULLS, len(context.delivery.long_polling))
    waited = context.throttle.throttled_seconds
    yield Reading(catalog.QUOTA_THROTTLED, [(tuple(each), took) for each, took in waited.items()])
    if context.node.serving:
        yield single(catalog.TIMING_MESSAGES, state.timed_waiting)
        yield single(catalog.HALF_MESSAGES, len(state.transactions))


def client_readings(context: BrokerContext) -> Iterator[Reading]:
    """Connections of clients, by their heartbeats."""
    clients = context.clients
    producers = Counter(
        client.language.name for group in clients.producers.values() for client in group.values()
    )
    yield Reading(
        catalog.PRODUCER_CONNECTIONS,
        [((language,), count) for language, count in producers.items()],
    )
    consumers = (
        ((name, language), float(count))
        for name, group in sorted(clients.consumers.items())
        for language, count in Counter(
            client.language.name for client in group.members.values()
        ).items()
    )
    yield Reading(
        catalog.CONSUMER_CONNECTIONS,
        bounded(consumers, METRICS.connected_groups_max, (OTHER, OTHER)),
    )


async def lag_readings(context: BrokerContext) -> list[Reading]:
    """The lag of groups; only on the leader, because followers apply offsets later.

    All offsets are read, in several turns of the event loop.
    """
    if not context.node.serving:
        return []
    by_pair: list[tuple[Labels, float]] = []
    by_queue: list[tuple[Labels, float]] = []
    waiting: dict[Labels, list[Place]] = {}
    unlisted = 0
    turn = Turn()
    for group in ConsumerGroups(context.machine, context.clients).all():
        for topic in group.topics:
            if topic.lag is None:
                continue
            by_pair.append((_pair(topic.topic, group.name), topic.lag))
            if len(by_queue) >= METRICS.lag_queues_max:
                unlisted += topic.lag
                await turn.took(len(topic.committed))
                continue
            queues = topic.queues()
            waiting[_pair(topic.topic, group.name)] = waiting_places(queues)
            by_queue += [
                ((topic.topic, group.name, str(queue.queue_id)), queue.lag) for queue in queues
            ]
            await turn.took(len(queues))
    if unlisted:
        by_queue.append(((OTHER, OTHER, OTHER), unlisted))
    await context.waiting_since.look(chain.from_iterable(waiting.values()))
    lag_ms = (
        (pair, float(ms))
        for pair, places in waiting.items()
        if (ms := context.waiting_since.lag_ms(places)) is not None
    )
    return [
        Reading(catalog.LAG_LATENCY, list(islice(lag_ms, METRICS.topic_groups_max))),
        Reading(catalog.LAG, bounded(by_pair, METRICS.topic_groups_max, _pair(OTHER, OTHER))),
        Reading(catalog.QUEUE_LAG, by_queue),
    ]


def _series(meters: Meters[K], other: K) -> Iterator[tuple[K, Totals]]:
    """Totals by key; the sum of keys without a series comes last."""
    by_key, others = meters.series()
    yield from by_key.items()
    if others.messages:
        yield other, others


def _topic(topic: str) -> Labels:
    return topic, _flag(topic in _SYSTEM)


def _pair(topic: str, group: str) -> Labels:
    system = topic in _SYSTEM or group.lower().startswith(_SYSTEM_GROUP_PREFIX)
    return topic, group, _flag(topic.startswith((RETRY_PREFIX, DLQ_PREFIX))), _flag(system)


def _flag(holds: bool) -> str:
    return "true" if holds else "false"
