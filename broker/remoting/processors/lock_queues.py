"""Queue locks: 41 and 42, on the leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.context import BrokerContext
from broker.delivery.queue_locks import LockedQueue
from broker.limits import BODY_LIMITS
from broker.remoting.connection import Connection
from broker.remoting.processors.client_manage import check_size
from broker.remoting.processors.json_body import json_object, objects_of, text_of
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.topics_and_groups import check_group_name
from store.quoting import quoted


class LockProcessor:
    """Handles the queue locks of ordered consumers."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def lock(self, connection: Connection, request: Frame) -> None:
        """Code 41; the answer names the queues that the client holds now."""
        group, client_id, wanted = self._read(request)
        granted = set(self._context.delivery.locks.lock(group, client_id, wanted))
        held = [named for queue, named in wanted.items() if queue in granted]
        connection.respond(request, body=(encode_json({"lockOKMQSet": held}),))

    def unlock(self, connection: Connection, request: Frame) -> None:
        """Code 42."""
        group, client_id, queues = self._read(request)
        self._context.delivery.locks.unlock(group, client_id, queues)
        connection.respond(request)

    def _read(self, request: Frame) -> tuple[str, str, dict[LockedQueue, Mapping[str, Any]]]:
        """Group, client, and the queues as the client names them."""
        self._context.batcher.check_serving()
        body = json_object(request, "the request for locks", BODY_LIMITS.lock_marks)
        queues = {
            LockedQueue(text_of(named, "topic"), _queue_id(named)): named
            for named in objects_of(body, "mqSet")
        }
        group = text_of(body, "consumerGroup")
        check_group_name(group)
        client_id = text_of(body, "clientId")
        check_size("clientId", client_id)
        return group, client_id, queues


def _queue_id(named: Mapping[str, Any]) -> int:
    value = named.get("queueId")
    if type(value) is not int or value < 0:
        raise FieldError(f"queueId is no number of a queue: {quoted(value)}")
    return value
