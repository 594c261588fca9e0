"""Sending: request codes 10, 310 and 320 (RocketMQ's ``SendMessageProcessor``).

A message is checked and staged in the turn in which its frame arrives, and answered when the entry
that holds it is committed and applied. RocketMQ adds a property ``CLUSTER`` to every message and so
rewrites all properties; here they are stored as the producer wrote them, but for ``WAIT`` of single
messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from struct import pack

from broker.context import BrokerContext
from broker.ingest.auto_create import auto_create_topic
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.message_router import MessageRouter
from broker.ingest.property_templates import MessageBuilder, Origin, origin
from broker.remoting.connection import Connection
from broker.remoting.error_responses import REFUSALS, refused, remark_of, response_code_of
from broker.remoting.processors.send_message_header import (
    INT32_MAX,
    LONG_NAMES,
    SHORT_NAMES,
    HeaderNames,
    NeedsRoutingError,
    SendHeader,
    read_header,
    read_templated_header,
    storable_in_batch,
)
from broker.remoting.protocol.codes import OUTCOME, OUTCOME_UNKNOWN, ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame, SuccessAnswer
from broker.remoting.protocol.header_templates import TemplatedFrame
from broker.topics_and_groups import DLQ_PREFIX, RETRY_PREFIX, TopicConfig
from dledger.errors import OutcomeUnknownError, ProposeError

STORED = SuccessAnswer(
    {
        "msgId": "%b",
        "queueId": "%d",
        "queueOffset": "%d",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
)


class SendMessageProcessor:
    """Handles what producers send."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._batcher = context.batcher
        self._deduplication_index = context.batcher.deduplication_index
        self._message_builder = MessageBuilder(context.config.cluster)
        self._batch_message_builder = MessageBuilder(context.config.cluster, storable_in_batch)
        self._router = MessageRouter(context)
        self._body_size_max = context.config.max_message_size
        self.store_host_hex = context.store_host.hex().upper().encode()

    def send(self, connection: Connection, request: Frame) -> None:
        """Code 10."""
        self._send(connection, request, LONG_NAMES)

    def send_v2(self, connection: Connection, request: Frame) -> None:
        """Code 310."""
        self._send(connection, request, SHORT_NAMES)

    def send_batch(self, connection: Connection, request: Frame) -> None:
        """Code 320."""
        self._send_batch(connection, request, SHORT_NAMES)

    def _send(self, connection: Connection, request: Frame, names: HeaderNames) -> None:
        header = read_templated_header(request) if type(request) is TemplatedFrame else None
        if header is None:
            # C++ core 1.0 sends a batch with code 10 and says so in this field alone.
            if names.batch in request.ext and ext_bool(request, names.batch):
                self._send_batch(connection, request, names)
                return
            header = read_header(request, names)
        try:
            queue_id = self._queue_id(request, names, header)
            message = self._message_builder.build(
                _origin(connection, header),
                header.flag,
                self._checked_body(request),
                header.properties,
            )
            answer = _Answer(self, connection, request, queue_id)
            hashes = message.key_hashes
            known = self._deduplication_index
            if hashes and (hashes[0] in known.newer or hashes[0] in known.older):
                self._context.deduplicator.add(header.topic, queue_id, [message], answer)
                return
            self._batcher.add_message(header.topic, queue_id, message, answer)
        except NeedsRoutingError:
            self._send_routed(connection, request, names, header, queue_id)
        except REFUSALS as error:
            raise refused(error) from error

    def _send_routed(
        self,
        connection: Connection,
        request: Frame,
        names: HeaderNames,
        header: SendHeader,
        queue_id: int,
    ) -> None:
        times_max = ext_int(request, "l" if names is SHORT_NAMES else "maxReconsumeTimes", -1)
        try:
            self._router.route(
                header,
                queue_id,
                request.body,
                connection.remote_host_bytes,
                waiter=_Answer(self, connection, request, queue_id),
                times_max=times_max,
            )
        except REFUSALS as error:
            raise refused(error) from error

    def _send_batch(self, connection: Connection, request: Frame, names: HeaderNames) -> None:
        header = read_header(request, names)
        if header.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, f"a batch may not go to the topic {header.topic}"
            )
        try:
            queue_id = self._queue_id(request, names, header)
            body = self._checked_body(request)
            of = _origin(connection, header)
            messages = decode_batch_body(self._batch_message_builder, of, body, header.properties)
            if not messages:
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "the batch has no message")
            answer = _Answer(self, connection, request, queue_id)
            self._context.deduplicator.add(header.topic, queue_id, messages, answer)
        except NeedsRoutingError:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message of a batch may neither wait nor belong to a transaction",
            ) from None
        except REFUSALS as error:
            raise refused(error) from error

    def _checked_body(self, request: Frame) -> bytes:
        body = request.body
        if len(body) > self._body_size_max:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body has {len(body)} bytes, at most {self._body_size_max} are allowed",
            )
        return body

    def _queue_id(self, request: Frame, names: HeaderNames, header: SendHeader) -> int:
        batcher = self._batcher
        if not batcher.serving:
            batcher.check_serving()
        topic = batcher.topic(header.topic)
        if topic is None:
            topic = auto_create_topic(
                self._context,
                header.topic,
                ext_str(request, names.default_topic),
                ext_int(request, names.default_queues, minimum=-INT32_MAX, maximum=INT32_MAX),
            )
        return queue_for_send(topic, header.queue_id, self._context.rng)


def _origin(connection: Connection, header: SendHeader) -> Origin:
    topic, _, sys_flag, born_timestamp, _, reconsume_times, _ = header
    return origin(topic, sys_flag, born_timestamp, connection.remote_host_bytes, reconsume_times)


def queue_for_send(topic: TopicConfig, queue_id: int, rng: Random) -> int:
    """The queue that takes the message: the one asked for, or any where that is below 0.

    Raises :class:`~broker.remoting.protocol.errors.RequestError`: 16 for a topic that is not
    writable, 1 for a queue that it has not.
    """
    if not topic.writable:
        raise RequestError(ResponseCode.NO_PERMISSION, f"the topic {topic.name} is not writable")
    if 0 <= queue_id < topic.write_queues:
        return queue_id
    if queue_id < 0:
        return rng.randrange(topic.write_queues)
    queues = max(topic.write_queues, topic.read_queues)
    if queue_id >= queues:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the topic {topic.name} has no queue {queue_id}, its queues are 0 to {queues - 1}",
        )
    return queue_id


class _Answer:
    """The answer that one send request waits for (see
    :class:`~broker.ingest.deduplication.SendWaiter`).
    """

    __slots__ = ("connection", "processor", "queue_id", "request")

    def __init__(
        self, processor: SendMessageProcessor, connection: Connection, request: Frame, queue_id: int
    ) -> None:
        self.processor = processor
        self.connection = connection
        self.request = request
        self.queue_id = queue_id

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        self._acknowledge(self.processor.store_host_hex, first_offset, positions)

    def already_stored(
        self, host: bytes, queue_id: int, first_offset: int, positions: Sequence[int]
    ) -> None:
        self.queue_id = queue_id
        self._acknowledge(host.hex().upper().encode(), first_offset, positions)

    def _acknowledge(self, host: bytes, first_offset: int, positions: Sequence[int]) -> None:
        if len(positions) == 1:
            message_ids = b"%b%016X" % (host, positions[0])
        else:
            # All at once: a fifth of what it takes to format one by one.
            digits = pack(f">{len(positions)}q", *positions).hex(",", 8).upper().encode()
            message_ids = host + digits.replace(b",", b"," + host)
        request = self.request
        self.connection.respond_encoded(
            request, STORED.encode(request, message_ids, self.queue_id, first_offset)
        )

    def failed(self, error: ProposeError) -> None:
        ext = {OUTCOME: OUTCOME_UNKNOWN} if isinstance(error, OutcomeUnknownError) else None
        self.connection.respond(self.request, response_code_of(error), remark_of(error), ext)
