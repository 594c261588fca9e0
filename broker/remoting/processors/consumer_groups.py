"""Requests of tools about consumer groups: 208, 300, 303, 317, 343, 345, and the project's 9004.

====  ==========================================================================================
9004  GET_CONSUMER_GROUPS: a JSON body ``{"groups": [{"group"}]}`` of the groups that exist. With
      ``group`` only that one, none where it does not exist, with ``configured``, ``members`` and
      ``topics``: ``[{"topic", "lag", "queues": [...], "lag_ms": [...]}]``; with ``topic`` as well
      only that topic, whether the group is known to consume it here or not. ``lag`` is null where
      the members keep their offsets themselves (broadcasting). ``lag_ms`` tells for each of the
      queues how long the next message has waited, null where that is not known.
====  ==========================================================================================

The answers come from :class:`~broker.admin.consumer_groups.ConsumerGroups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from broker.admin.consumer_groups import (
    ConsumerGroups,
    GroupProgress,
    QueueProgress,
    TopicProgress,
    waiting_places,
)
from broker.context import BrokerContext
from broker.delivery.store_times import Place, store_times
from broker.errors import unknown_topic
from broker.limits import ADMIN
from broker.remoting.connection import Connection
from broker.remoting.processors.client_manage import no_member
from broker.remoting.protocol.ext_fields import ext_bool, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json, object_map

NO_MESSAGE_MS = -1
"""The store time of a missing message in the answer to 303."""


class GroupProcessor:
    """Describes groups and their progress."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._groups = ConsumerGroups(context.machine, context.clients)

    def consumer_groups(self, connection: Connection, request: Frame) -> None:
        """Code 9004."""
        only, topic = ext_str(request, "group", ""), ext_str(request, "topic", "")
        if not only:
            groups = [{"group": name} for name in self._groups.names()]
            connection.respond(request, body=(encode_json({"groups": groups}),))
            return
        found = self._groups.find_in(only, topic) if topic else self._groups.find(only)
        if found is None:
            connection.respond(request, body=(encode_json({"groups": []}),))
            return
        queues = self._list_queues(found.topics)

        def answer(times: Mapping[Place, int]) -> None:
            connection.respond(
                request, body=(encode_json({"groups": [self._detail(found, queues, times)]}),)
            )

        places = waiting_places(queues)[: ADMIN.lag_times_max]
        store_times(self._context.loop, self._context.lookup, places, answer)

    def consume_stats(self, connection: Connection, request: Frame) -> None:
        """Code 208: a group's progress in each queue, of all topics or of the given one."""
        group, only_topic = ext_str(request, "consumerGroup"), ext_str(request, "topic", "")
        topics: Sequence[TopicProgress | None]
        if only_topic:
            topics = [self._groups.progress(group, only_topic)]
        else:
            found = self._groups.find(group)
            topics = [] if found is None else found.topics
        known = [topic for topic in topics if topic is not None]
        queues = self._list_queues(known)

        def answer(times: Mapping[Place, int]) -> None:
            connection.respond(request, body=(self._stats(group, known, queues, times),))

        store_times(self._context.loop, self._context.lookup, _newest_consumed(queues), answer)

    def all_consume_stats(self, connection: Connection, request: Frame) -> None:
        """Code 317: the progress of every group of this broker, by group and topic."""
        order_only = ext_bool(request, "isOrder", False)
        by_group: dict[str, list[TopicProgress]] = {}

        def each() -> Iterator[TopicProgress]:
            for group in self._groups.all():
                for topic in group.topics:
                    if not topic.broadcast and (topic.contents.config.order or not order_only):
                        by_group.setdefault(group.name, []).append(topic)
                        yield topic

        queues = self._list_queues(each())

        def answer(times: Mapping[Place, int]) -> None:
            groups = [
                b"{%b:[%b]}"
                % (
                    encode_json(group),
                    b",".join(
                        self._stats(group, [topic], topic.queues(), times) for topic in topics
                    ),
                )
                for group, topics in by_group.items()
            ]
            body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d}' % (
                encode_json(str(self._context.config.own.address)),
                b",".join(groups),
                sum(queue.lag for queue in queues),
            )
            connection.respond(request, body=(body,))

        store_times(self._context.loop, self._context.lookup, _newest_consumed(queues), answer)

    def time_spans(self, connection: Connection, request: Frame) -> None:
        """Code 303, for each queue: the store times of its first, its last and its last consumed
        message, and how long the next one has waited, all in ms."""
        name, group = ext_str(request, "topic"), ext_str(request, "group")
        topic = self._groups.progress(group, name)
        if topic is None:
            raise unknown_topic(name)
        queues = topic.queues()

        def answer(times: Mapping[Place, int]) -> None:
            now_ms = self._context.wall_clock()
            spans = []
            for queue in queues:
                place = (name, queue.queue_id)
                waits_since = times[*place, queue.position]
                first_ms = times[*place, queue.first] or NO_MESSAGE_MS
                spans.append(
                    {
                        "messageQueue": self._queue(*place),
                        "minTimeStamp": first_ms,
                        "maxTimeStamp": times[*place, queue.end - 1] or NO_MESSAGE_MS,
                        "consumeTimeStamp": times[*place, queue.position - 1] or first_ms,
                        "delayTime": now_ms - waits_since if waits_since else 0,
                    }
                )
            connection.respond(request, body=(encode_json({"consumeTimeSpanSet": spans}),))

        places = [
            (name, queue.queue_id, offset)
            for queue in queues
            for offset in (queue.first, queue.end - 1, queue.position - 1, queue.position)
        ]
        store_times(self._context.loop, self._context.lookup, places, answer)

    def groups_of_topic(self, connection: Connection, request: Frame) -> None:
        """Code 300."""
        groups = self._groups.of_topic(ext_str(request, "topic"))
        connection.respond(request, body=(encode_json({"groupList": groups}),))

    def topics_of_group(self, connection: Connection, request: Frame) -> None:
        """Code 343."""
        topics = self._groups.topics_of(ext_str(request, "group"))
        connection.respond(request, body=(encode_json({"topicList": topics}),))

    def subscription_of_group(self, connection: Connection, request: Frame) -> None:
        """Code 345: the subscription of a connected group to a topic."""
        group, name = ext_str(request, "group"), ext_str(request, "topic")
        found = self._context.clients.subscription(group, name)
        if group not in self._context.clients.consumers:
            raise no_member(group)
        document = {"group": group, "topic": name}
        subscription = {} if found is None else {"subscriptionData": found.as_json()}
        connection.respond(request, body=(encode_json({**document, **subscription}),))

    def _list_queues(self, topics: Iterable[TopicProgress]) -> list[QueueProgress]:
        return self._groups.list_queues(topics)

    def _detail(
        self, group: GroupProgress, listed: Iterable[QueueProgress], times: Mapping[Place, int]
    ) -> dict[str, object]:
        now_ms = self._context.wall_clock()
        queues: dict[str, list[dict[str, object]]] = {topic.topic: [] for topic in group.topics}
        # Not a field of the queues: `dledger` 0.1.0 accepts no further field there.
        lag_ms: dict[str, list[int | None]] = {topic.topic: [] for topic in group.topics}
        for queue in listed:
            since_ms = times.get((queue.topic, queue.queue_id, queue.position), 0)
            waited_ms = max(0, now_ms - since_ms) if since_ms else None
            lag_ms[queue.topic].append(waited_ms if queue.lag else 0)
            queues[queue.topic].append(
                {
                    "queue_id": queue.queue_id,
                    "min_offset": queue.first,
                    "max_offset": queue.end,
                    "committed": queue.committed,
                    "offset": queue.position,
                    "lag": queue.lag,
                }
            )
        topics = [
            {
                "topic": topic.topic,
                "lag": topic.lag,
                "queues": queues[topic.topic],
                "lag_ms": lag_ms[topic.topic],
            }
            for topic in group.topics
        ]
        return {
            "group": group.name,
            "configured": group.configured,
            "members": group.members,
            "topics": topics,
        }

    def _stats(
        self,
        group: str,
        topics: Iterable[TopicProgress],
        queues: Iterable[QueueProgress],
        times: Mapping[Place, int],
    ) -> bytes:
        """RocketMQ's ``ConsumeStats``."""
        meters = self._context.rates.topic_metrics
        rate = encode_json(round(sum(meters.rate(topic.topic, group) for topic in topics), 2))
        table = object_map(
            (
                self._queue(queue.topic, queue.queue_id),
                {
                    "brokerOffset": queue.end,
                    "consumerOffset": queue.position,
                    "lastTimestamp": times.get(
                        (queue.topic, queue.queue_id, queue.position - 1), 0
                    ),
                },
            )
            for queue in queues
        )
        return b'{"consumeTps":%b,"offsetTable":%b}' % (rate, table)

    def _queue(self, topic: str, queue_id: int) -> dict[str, object]:
        return {"brokerName": self._context.config.group, "queueId": queue_id, "topic": topic}


def _newest_consumed(queues: Iterable[QueueProgress]) -> list[Place]:
    """For each queue, the message before the group's offset, if it still exists."""
    return [
        (queue.topic, queue.queue_id, queue.position - 1)
        for queue in queues
        if queue.position > queue.first
    ]
