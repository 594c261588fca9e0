"""Moving a group that consumes to another place: 222, which tells its members by 220.

A group without a connected member is answered with 206: whoever asks then commits the offsets
itself (15), as Apache's tools do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from broker.admin.consumer_groups import ConsumerGroups
from broker.admin.topic_contents import queue_ranges
from broker.context import BrokerContext
from broker.errors import REFUSALS, Refusal
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal
from broker.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json, object_map
from broker.state.commands import CommitOffset
from store.errors import StoreError

TO_THE_END = -1
"""As a time stamp: behind the newest message."""


class ResetProcessor:
    """Handles resets of groups, on the leader."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def reset(self, connection: Connection, request: Frame) -> None:
        """Code 222: ``timestamp`` in ms (-1: the end of the queue), ``isForce``, and of RocketMQ 5
        ``queueId`` for one queue alone and ``offset`` instead of a time.

        A queue goes to the first message that is not older than the time, without ``isForce`` only
        if that is back. The answer has the new offsets; it comes when they are committed.
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
        reset = _Reset(context, connection, request, topic, group, force, len(queues))
        for queue_id in queues:
            if given_offset >= 0:
                first, end = context.reader.offsets(topic, queue_id)
                reset.found(queue_id, min(max(given_offset, first), end), None)
            elif timestamp_ms == TO_THE_END:
                reset.found(queue_id, context.reader.offsets(topic, queue_id)[1], None)
            else:
                context.lookup.search_time(
                    topic, queue_id, timestamp_ms, "lower", partial(reset.found, queue_id)
                )

    def _queues(self, name: str, only_queue: int) -> Sequence[int]:
        topic = self._context.batcher.topic(name)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        if only_queue < 0:
            return list(queue_ranges(self._context.machine, topic))
        if only_queue >= topic.queues:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {name} has no queue {only_queue}, its queues are 0 to "
                f"{topic.queues - 1}",
            )
        return [only_queue]


class _Reset:
    """One reset under way: the offsets are found, then committed, then told."""

    def __init__(  # noqa: PLR0917 - the fields of the request
        self,
        context: BrokerContext,
        connection: Connection,
        request: Frame,
        topic: str,
        group: str,
        force: bool,
        queues: int,
    ) -> None:
        self._context = context
        self._connection = connection
        self._request = request
        self._topic = topic
        self._group = group
        self._force = force
        self._waits_for = queues
        self._offsets: dict[int, int] = {}
        self._failure: Refusal | StoreError | None = None

    def found(self, queue_id: int, offset: int, error: StoreError | None) -> None:
        """Where the queue is to go; commits once that is known of all of them."""
        self._offsets[queue_id] = offset
        if error is not None:
            self._failure = error
        self._waits_for -= 1
        if self._waits_for == 0:
            self._commit()

    def _commit(self) -> None:
        batcher = self._context.batcher
        if self._failure is not None:
            self._refuse(self._failure)
            return
        if not self._force:
            for queue_id, offset in self._offsets.items():
                consumed = batcher.offset(self._group, self._topic, queue_id)
                if consumed is not None:
                    self._offsets[queue_id] = min(offset, consumed)
        self._waits_for = len(self._offsets)
        for queue_id, offset in self._offsets.items():
            command = CommitOffset(self._group, self._topic, queue_id, offset)
            try:
                batcher.add_command(command, self._committed)
            except REFUSALS as error:
                self._committed(error)
            else:
                self._context.resets.begin(self._group, self._topic, queue_id, offset)

    def _committed(self, error: Refusal | None) -> None:
        self._failure = error or self._failure
        self._waits_for -= 1
        if self._waits_for:
            return
        if self._failure is not None:
            for queue_id in self._offsets:
                self._context.resets.give_up(self._group, self._topic, queue_id)
            self._refuse(self._failure)
        else:
            self._tell()

    def _refuse(self, why: Refusal | StoreError) -> None:
        if isinstance(why, REFUSALS):
            respond_refusal(self._connection, self._request, why)
        else:
            self._connection.respond(self._request, ResponseCode.SYSTEM_ERROR, str(why))

    def _tell(self) -> None:
        context, topic, group = self._context, self._topic, self._group
        broker = context.config.group
        for queue_id, offset in sorted(self._offsets.items()):
            context.resets.add(group, topic, queue_id, offset)
        by_queue = [
            ({"brokerName": broker, "queueId": queue_id, "topic": topic}, offset)
            for queue_id, offset in sorted(self._offsets.items())
        ]
        table = b'{"offsetTable":%b}' % object_map(by_queue)
        told = {
            "topic": topic,
            "group": group,
            "timestamp": str(ext_int(self._request, "timestamp")),
            "isForce": "true" if self._force else "false",
        }
        members = context.clients.consumers.get(group)
        for member, client in () if members is None else members.members.items():
            body = _for_cpp(by_queue) if client.language is LanguageCode.CPP else table
            member.push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, (body,))
        for queue_id in sorted(self._offsets):
            context.long_polling.wake(topic, queue_id)
        self._connection.respond(self._request, body=(table,))


def _for_cpp(by_queue: Sequence[tuple[Mapping[str, object], int]]) -> bytes:
    """C++ clients read a list, as they have no maps with such keys."""
    return encode_json({"offsetTable": [{**queue, "offset": offset} for queue, offset in by_queue]})
