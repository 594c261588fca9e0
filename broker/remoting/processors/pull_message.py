"""Pulling: codes 11 and 361 (RocketMQ's ``PullMessageProcessor``), on leaders and followers.

How much one pull brings: as from RocketMQ, at most 32 messages and 256 KiB, whatever the client's
``maxMsgNums`` up to 32 says. A client that asks for more than 32 messages, which RocketMQ would not
give, means it: it gets up to 1,024 messages and 4 MiB, or what its ``maxMsgBytes`` (5.x) says.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import BrokerContext
from broker.delivery.long_polling import HeldPull
from broker.delivery.message_filter import SCAN_LIMITS, MessageFilter, message_filter, selected
from broker.delivery.message_reader import GetMessageResult, GetMessageStatus, PullLimits
from broker.errors import REFUSALS
from broker.filter.subscription import TAG_TYPE
from broker.limits import CONSUME, STATE
from broker.remoting.connection import Connection
from broker.remoting.error_responses import refused
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.topics_and_groups import TopicConfig
from store.errors import StoreError
from store.io.filesystem import Bytes

FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4

MESSAGES_USUAL = 32
BYTES_USUAL = 256 << 10

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class PullMessageProcessor:
    """Handles pulls."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def pull(self, connection: Connection, request: Frame) -> None:
        """Codes 11 and 361, which differ in name only."""
        try:
            pull = self._read_request(connection, request)
        except REFUSALS as error:
            raise refused(error) from error
        pull.run()

    def _read_request(self, connection: Connection, request: Frame) -> _Pull:
        context = self._context
        group = ext_str(request, "consumerGroup")
        topic_name = ext_str(request, "topic")
        queue_id = ext_int(request, "queueId")
        offset = ext_int(request, "queueOffset")
        limits = _limits(request)
        flags = ext_int(request, "sysFlag")
        hold_ms = ext_int(request, "suspendTimeoutMillis")
        context.ingest.auto_creator.ensure_group(group)
        settings = context.batcher.group(group)
        if settings is not None and not settings.consume_enable:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"the group {group} is not allowed to consume"
            )
        if settings is not None and not settings.consume_broadcast_enable:
            self._refuse_broadcasting(group)
        self._readable_queue(topic_name, queue_id)
        wanted = self._filter(request, group, topic_name, flags)
        if flags & FLAG_COMMIT_OFFSET:
            self._commit_offset(group, topic_name, queue_id, ext_int(request, "commitOffset"))
        hold_seconds = (
            min(hold_ms / 1000, CONSUME.long_poll_seconds_max) if flags & FLAG_SUSPEND else 0.0
        )
        return _Pull(
            context,
            connection,
            request,
            group,
            topic_name,
            queue_id,
            offset,
            limits,
            wanted,
            context.loop.time() + hold_seconds if hold_seconds > 0 else None,
        )

    def _commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What cannot be is passed over, as the pull itself may be what tells the client: where a
        queue has lost its newest messages, the answer sends it back to the end."""
        context = self._context
        batcher, resets = context.batcher, context.resets
        if not batcher.serving or not 0 <= offset <= batcher.end_offset(topic, queue_id):
            return
        if resets and resets.is_pending(group, topic, queue_id):
            return
        if (
            context.machine.state.offset_count < STATE.offsets_max
            or batcher.offset(group, topic, queue_id) is not None
        ):
            batcher.add_lazy_offset(group, topic, queue_id, offset)

    def _refuse_broadcasting(self, group: str) -> None:
        members = self._context.clients.consumers.get(group)
        if members is not None and members.settings.message_model == "BROADCASTING":
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way",
            )

    def _readable_queue(self, name: str, queue_id: int) -> TopicConfig:
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        if not topic.readable:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the topic {name} is not readable")
        if not 0 <= queue_id < topic.read_queues:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {name} has no queue {queue_id} to read, "
                f"its queues are 0 to {topic.read_queues - 1}",
            )
        return topic

    def _filter(self, request: Frame, group: str, topic: str, flags: int) -> MessageFilter:
        if flags & FLAG_SUBSCRIPTION:
            kind = ext_str(request, "expressionType", TAG_TYPE) or TAG_TYPE
            expression = ext_str(request, "subscription", "")
        else:
            known = self._context.clients.subscription(group, topic)
            if known is None:
                raise RequestError(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST,
                    f"the group {group} has not said what it wants of {topic}",
                )
            if known.version < ext_int(request, "subVersion"):
                raise RequestError(
                    ResponseCode.SUBSCRIPTION_NOT_LATEST,
                    f"the subscription of {group} to {topic} known here is not the latest",
                )
            kind, expression = known.expression_type, known.expression
        return message_filter(self._context.settings, kind, expression)


class _Pull:
    """One pull on its way; it may be held, and run again, until its deadline."""

    __slots__ = (
        "connection",
        "context",
        "deadline",
        "group",
        "limits",
        "offset",
        "queue_id",
        "request",
        "topic",
        "wanted",
    )

    def __init__(  # noqa: PLR0917 - the fields of the request
        self,
        context: BrokerContext,
        connection: Connection,
        request: Frame,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        limits: PullLimits,
        wanted: MessageFilter,
        deadline: float | None,
    ) -> None:
        self.context = context
        self.connection = connection
        self.request = request
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.limits = limits
        self.wanted = wanted
        self.deadline = deadline

    def run(self) -> None:
        if self.context.resets and self._was_moved():
            return
        codes, selector, _ = self.wanted
        limits = self.limits if selector is None else SCAN_LIMITS
        try:
            found = self.context.reader.find(self.topic, self.queue_id, self.offset, limits, codes)
        except StoreError as error:
            self.connection.respond(self.request, ResponseCode.SYSTEM_ERROR, str(error))
            return
        if found.status is GetMessageStatus.FOUND:
            self.context.reader.load(
                found.ranges, lambda parts, error: self._loaded(found, parts, error)
            )
        elif self._code(found) is not ResponseCode.PULL_NOT_FOUND or not self._held():
            self.context.rates.pulled(self.topic, self.group, 0, 0)
            self._answer(found)

    def _was_moved(self) -> bool:
        """Sends a group that was moved by an operator to where it has to go on."""
        offset = self.context.resets.take(self.group, self.topic, self.queue_id)
        if offset is None or offset == self.offset:
            return False
        first, end = self.context.reader.offsets(self.topic, self.queue_id)
        self._answer(GetMessageResult(GetMessageStatus.OFFSET_RESET, offset, first, end))
        return True

    def _held(self) -> bool:
        deadline = self.deadline
        if deadline is None or deadline <= self.context.loop.time():
            return False
        wanted = self.wanted
        held = HeldPull(
            self.topic, self.queue_id, wanted.codes, self.run, self.connection, wanted.size
        )
        if not self.context.long_polling.hold(held, deadline):
            return False
        request = self.request
        if request.ext or request.body:  # they are read, and would be kept for as long
            self.request = Frame(
                request.code, request.opaque, request.flag, serialization=request.serialization
            )
        return True

    def _loaded(
        self, found: GetMessageResult, parts: Sequence[Bytes], error: StoreError | None
    ) -> None:
        if error is None:
            if self.wanted.selector is not None:
                try:
                    found, parts = selected(
                        self.wanted.selector, self.offset, found, parts, self.limits
                    )
                except StoreError as damage:
                    self.connection.respond(self.request, ResponseCode.SYSTEM_ERROR, str(damage))
                    return
            self.context.rates.pulled(self.topic, self.group, found.messages, sum(map(len, parts)))
            self._answer(found, parts)
        elif self.offset < self.context.reader.offsets(self.topic, self.queue_id)[0]:
            self.run()  # expired while it was read; the queue begins later now, and says so
        else:
            # Never an answer that moves the client on: the message is there, on other nodes.
            self.connection.respond(self.request, ResponseCode.SYSTEM_ERROR, str(error))

    def _code(self, found: GetMessageResult) -> ResponseCode:
        if found.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            asked_start = self.offset == 0
            return ResponseCode.PULL_NOT_FOUND if asked_start else ResponseCode.PULL_OFFSET_MOVED
        return _CODES[found.status]

    def _suggestion(self, found: GetMessageResult) -> int:
        machine = self.context.machine
        group = machine.state.groups.get(self.group)
        return self.context.replica_selection.suggested_broker_id(
            found.ranges,
            machine.applied_end,
            None if group is None else group.which_broker_when_slow,
        )

    def _answer(self, found: GetMessageResult, parts: Sequence[Bytes] = ()) -> None:
        self.connection.respond(
            self.request,
            self._code(found),
            found.status.value,
            {
                "suggestWhichBrokerId": str(self._suggestion(found)),
                "nextBeginOffset": str(found.next_offset),
                "minOffset": str(found.min_offset),
                "maxOffset": str(found.max_offset),
            },
            parts,
        )


def _limits(request: Frame) -> PullLimits:
    asked = ext_int(request, "maxMsgNums")
    messages = max(1, min(asked, CONSUME.pull_messages_max))
    bytes_max = CONSUME.pull_bytes_max
    usual = BYTES_USUAL if messages <= MESSAGES_USUAL else bytes_max
    size = ext_int(request, "maxMsgBytes", usual)
    return PullLimits(messages, max(1, min(size, bytes_max)))
