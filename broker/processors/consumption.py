"""How far groups are, as tools ask it: 303, 317, 321, 343, 345."""

from __future__ import annotations

from collections.abc import Mapping

from broker.context import BrokerContext
from broker.limits import CONSUME
from broker.processors.filters import message_filter
from broker.reader import rows
from broker.remoting.codes import ResponseCode
from broker.remoting.connection import Connection
from broker.remoting.errors import RequestError
from broker.remoting.fields import ext_bool, ext_int, ext_str
from broker.remoting.frame import Frame
from broker.remoting.javajson import encode_json, object_map
from broker.storetimes import Place, store_times
from broker.subscription import TAG_TYPE, ExpressionError
from broker.topics import TopicConfig
from store.errors import StoreError


class ConsumptionProcessor:
    """Handles questions about groups and what they consume."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def time_spans(self, connection: Connection, request: Frame) -> None:
        """Code 303: of each queue when its first and last message and the last one that the group
        consumed were stored, and for how long the next one has waited, all in ms."""
        name, group = ext_str(request, "topic"), ext_str(request, "group")
        topic = self._topic(name)
        state, offsets = self._context.machine.state, self._context.reader.offsets
        spans = {
            queue_id: (*offsets(name, queue_id), state.offset(group, name, queue_id) or 0)
            for queue_id in self._context.reader.listed_queues(topic)
            if queue_id < topic.write_queues
        }

        def found(times: Mapping[Place, int]) -> None:
            now_ms = self._context.wall_clock()
            answer = []
            for queue_id, (first, end, consumed) in spans.items():
                waits_since = times[name, queue_id, consumed]
                first_ms = times[name, queue_id, first]
                answer.append(
                    {
                        "messageQueue": self._queue(name, queue_id),
                        "minTimeStamp": first_ms,
                        "maxTimeStamp": times[name, queue_id, end - 1],
                        "consumeTimeStamp": times[name, queue_id, consumed - 1] or first_ms,
                        "delayTime": now_ms - waits_since if waits_since else 0,
                    }
                )
            connection.respond(request, body=(encode_json({"consumeTimeSpanSet": answer}),))

        places = [
            (name, queue_id, offset)
            for queue_id, (first, end, consumed) in spans.items()
            for offset in (first, end - 1, consumed - 1, consumed)
        ]
        store_times(self._context.lookup, places, found)

    def all_consume_stats(self, connection: Connection, request: Frame) -> None:
        """Code 317: the progress of every group of this broker, by group and topic."""
        order_only = ext_bool(request, "isOrder", False)
        state = self._context.machine.state
        by_group: dict[str, list[tuple[str, dict[int, int]]]] = {}
        for (group, name), queues in sorted(state.offsets.items()):
            topic = state.topics.get(name)
            if group in state.groups and topic is not None and (topic.order or not order_only):
                by_group.setdefault(group, []).append((name, queues))
        places = [
            (name, queue_id, offset - 1)
            for topics in by_group.values()
            for name, queues in topics
            for queue_id, offset in queues.items()
        ]

        def found(times: Mapping[Place, int]) -> None:
            total = 0
            groups = []
            meters = self._context.rates.meters
            for group, topics in by_group.items():
                stats = []
                for name, queues in topics:
                    table, behind = self._progress(name, queues, times)
                    total += behind
                    rate = encode_json(round(meters.rate(name, group), 2))
                    stats.append(b'{"consumeTps":%b,"offsetTable":%b}' % (rate, table))
                groups.append(b"{%b:[%b]}" % (encode_json(group), b",".join(stats)))
            body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d}' % (
                encode_json(str(self._context.config.own.address)),
                b",".join(groups),
                total,
            )
            connection.respond(request, body=(body,))

        store_times(self._context.lookup, places, found)

    def queue_rows(self, connection: Connection, request: Frame) -> None:
        """Code 321: rows of a ConsumeQueue; with a group, what it is subscribed to and which rows
        pass by their tag."""
        name, queue_id = ext_str(request, "topic"), ext_int(request, "queueId")
        index, count = ext_int(request, "index"), ext_int(request, "count")
        group = ext_str(request, "consumerGroup", "")
        topic = self._topic(name)
        if not 0 <= queue_id < max(topic.read_queues, topic.write_queues):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the topic {name} has no queue {queue_id}"
            )
        first, end = self._context.reader.offsets(name, queue_id)
        document: dict[str, object] = {"maxQueueIndex": end, "minQueueIndex": first}
        codes = None
        subscription = self._context.clients.subscription(group, name)
        if subscription is not None:
            document["subscriptionData"] = subscription.as_json()
            if subscription.expression_type == TAG_TYPE:
                try:
                    codes = message_filter(
                        self._context.settings, TAG_TYPE, subscription.expression
                    ).codes
                except ExpressionError as error:
                    document["filterData"] = str(error)
        queue = self._context.machine.queue(name, queue_id)
        count = max(0, min(count, CONSUME.queue_rows_max))
        try:
            data = b"" if queue is None else queue.read(max(index, first), count)
        except StoreError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        document["queueData"] = [
            {
                "physicOffset": position,
                "physicSize": size,
                "tagsCode": code,
                "eval": codes is None or code in codes,
            }
            for position, size, code in rows(data)
        ]
        connection.respond(request, body=(encode_json(document),))

    def topics_of_group(self, connection: Connection, request: Frame) -> None:
        """Code 343: the topics that a group has consumed or is connected for."""
        group = ext_str(request, "group")
        known = self._context.clients.consumers.get(group)
        topics = {name for owner, name in self._context.machine.state.offsets if owner == group}
        topics.update(() if known is None else known.subscriptions)
        connection.respond(request, body=(encode_json({"topicList": sorted(topics)}),))

    def subscription_of_group(self, connection: Connection, request: Frame) -> None:
        """Code 345: what a connected group wants of a topic."""
        group, name = ext_str(request, "group"), ext_str(request, "topic")
        found = self._context.clients.subscription(group, name)
        if group not in self._context.clients.consumers:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no client of the group {group} is connected"
            )
        document = {"group": group, "topic": name}
        subscription = {} if found is None else {"subscriptionData": found.as_json()}
        connection.respond(request, body=(encode_json({**document, **subscription}),))

    def _progress(
        self, name: str, queues: Mapping[int, int], times: Mapping[Place, int]
    ) -> tuple[bytes, int]:
        """The table of one topic, and by how many messages the group is behind in it."""
        entries = []
        behind = 0
        for queue_id, offset in sorted(queues.items()):
            _first, end = self._context.reader.offsets(name, queue_id)
            behind += max(0, end - offset)
            entry = {
                "brokerOffset": end,
                "consumerOffset": offset,
                "lastTimestamp": times[name, queue_id, offset - 1],
            }
            entries.append((self._queue(name, queue_id), entry))
        return object_map(entries), behind

    def _queue(self, name: str, queue_id: int) -> dict[str, object]:
        return {"brokerName": self._context.config.group, "queueId": queue_id, "topic": name}

    def _topic(self, name: str) -> TopicConfig:
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        return topic
