"""Resets the offsets of a connected group: 222. The members are notified by 220.

A group without a connected member is answered with 206. The caller then commits the offsets itself
(15), as Apache's tools do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from broker.admin.consumer_groups import ConsumerGroups
from broker.admin.topic_contents import queue_ranges
from broker.context import BrokerContext
from broker.delivery.offset_resets import TO_THE_END, ResetRequest
from broker.errors import Refusal, unknown_topic
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json, object_map
from broker.topics_and_groups import check_queue
from store.errors import StoreError


class ResetProcessor:
    """Handles resets of groups, on the leader."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def reset(self, connection: Connection, request: Frame) -> None:
        """Code 222: ``timestamp`` in ms (-1: the end of the queue), ``isForce``, and since RocketMQ
        5 ``queueId`` for one queue alone and ``offset`` instead of a time.

        A queue is set to the first message that is not older than the time; without ``isForce``
        only if that moves it back. The answer has the new offsets, and comes once they are
        committed.
        """
        context = self._context
        topic, group = ext_str(request, "topic"), ext_str(request, "group")
        timestamp_ms = ext_int(request, "timestamp", minimum=TO_THE_END)
        only_queue = ext_int(request, "queueId", -1, minimum=-1, maximum=INT32_MAX)
        given_offset = ext_int(request, "offset", -1, minimum=-1)
        force = ext_bool(request, "isForce", False)
        context.batcher.check_serving()
        queues = self._queues(topic, only_queue)
        members = context.clients.consumers.get(group)
        if members is None:
            known = ConsumerGroups(context.machine, context.clients).find(group)
            if known is None and context.batcher.group(group) is None:
                raise RequestError(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {group} does not exist"
                )
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {timestamp_ms}",
            )
        reset = ResetRequest(group, topic, queues, timestamp_ms, given_offset, force)
        context.delivery.resetter.reset(reset, partial(self._moved, connection, request, reset))

    def _moved(
        self,
        connection: Connection,
        request: Frame,
        reset: ResetRequest,
        offsets: Mapping[int, int] | None,
        error: Refusal | StoreError | None,
    ) -> None:
        if offsets is not None:
            by_queue = [
                (
                    {
                        "brokerName": self._context.config.group,
                        "queueId": queue_id,
                        "topic": reset.topic,
                    },
                    offset,
                )
                for queue_id, offset in offsets.items()
            ]
            table = b'{"offsetTable":%b}' % object_map(by_queue)
            self._tell_members(reset, by_queue, table)
            connection.respond(request, body=(table,))
        elif error is not None:
            respond_refusal(connection, request, error)

    def _tell_members(
        self,
        reset: ResetRequest,
        by_queue: Sequence[tuple[Mapping[str, object], int]],
        table: bytes,
    ) -> None:
        told = {
            "topic": reset.topic,
            "group": reset.group,
            "timestamp": str(reset.timestamp_ms),
            "isForce": "true" if reset.force else "false",
        }
        for member, client in self._context.clients.group(reset.group).members.items():
            body = _for_cpp(by_queue) if client.language is LanguageCode.CPP else table
            member.push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, (body,))

    def _queues(self, name: str, only_queue: int) -> Sequence[int]:
        topic = self._context.batcher.topic(name)
        if topic is None:
            raise unknown_topic(name)
        if only_queue < 0:
            return list(queue_ranges(self._context.machine, topic))
        check_queue(topic, only_queue)
        return [only_queue]


def _for_cpp(by_queue: Sequence[tuple[Mapping[str, object], int]]) -> bytes:
    """The list that C++ clients read: they have no maps with objects as keys."""
    return encode_json({"offsetTable": [{**queue, "offset": offset} for queue, offset in by_queue]})
