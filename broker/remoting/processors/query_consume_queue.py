"""The rows of a ConsumeQueue, for tools: 321."""

from __future__ import annotations

from broker.context import BrokerContext
from broker.delivery.message_filter import message_filter
from broker.delivery.message_reader import rows
from broker.errors import unknown_topic
from broker.filter.subscription import TAG_TYPE, ExpressionError
from broker.limits import CONSUME
from broker.remoting.connection import Connection
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.topics_and_groups import check_queue


class QueryConsumeQueueProcessor:
    """Shows the rows of a queue, and which of them a group would get."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def queue_rows(self, connection: Connection, request: Frame) -> None:
        """Code 321: rows of a ConsumeQueue; with a group, also its subscription and which rows
        match it by tags code."""
        name, queue_id = ext_str(request, "topic"), ext_int(request, "queueId")
        index, count = ext_int(request, "index"), ext_int(request, "count")
        group = ext_str(request, "consumerGroup", "")
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        check_queue(topic, queue_id)
        first, end = self._context.reader.offsets(name, queue_id)
        document: dict[str, object] = {"maxQueueIndex": end, "minQueueIndex": first}
        codes = None
        subscription = self._context.clients.subscription(group, name)
        if group and subscription is None:
            document["filterData"] = f"{group}@{name} is not online!"
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
        data = b"" if queue is None else queue.read(max(index, first), count)
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
