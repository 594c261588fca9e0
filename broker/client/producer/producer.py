"""The producer with which a program sends messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import ClassVar, Self

from broker.client.client_identity import ClientIdentity, UniqueKeys, local_identity
from broker.client.config import ProducerConfig, security_of
from broker.client.errors import (
    ClientError,
    DeadlineError,
    IllegalMessageError,
    NoQueueError,
    NoReplyError,
    check_success,
)
from broker.client.message import BODY_SIZE_MAX, Bytes, Message, MessageQueue, SendResult
from broker.client.producer.latency_faults import LatencyFaults
from broker.client.producer.pending_send import PendingSend
from broker.client.producer.producer_heartbeat import ProducerHeartbeats
from broker.client.producer.queue_selection import QueueSelector, queue_index
from broker.client.producer.request_reply import PendingReplies, Reply, ReplySender
from broker.client.producer.send_dispatcher import SendDispatcher
from broker.client.producer.send_encoding import (
    KEY_PROPERTY_SIZE,
    SendTemplates,
    batch_body,
    batch_values,
    single_values,
)
from broker.client.received_message import ReceivedMessage
from broker.client.route.leader_calls import until_answered
from broker.client.route.route_cache import Routes
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Handler
from broker.remoting.protocol.addresses import parse_name_servers
from broker.remoting.protocol.codes import RequestCode
from broker.system.wall_clock import system_clock_ms
from store.message.compressed_body import compress_body


class Producer:
    """Sends to the topics of one cluster. Make it inside the event loop that it will run in::

        async with Producer("127.0.0.1:9876") as producer:
            result = await producer.send(Message("orders", b"one"))

    Many sends may be in progress at the same time. Their order is kept only if each waits for the
    one before it (``client/producer/pipeline.py`` does that for streams, queue by queue). An
    acknowledged message is stored. It is stored twice only in the cases of
    ``client/producer/send_outcome_query.py``.
    """

    send_dispatcher_class: ClassVar[type[SendDispatcher]] = SendDispatcher

    def __init__(
        self,
        name_servers: str,
        config: ProducerConfig | None = None,
        *,
        wall_clock: Callable[[], int] = system_clock_ms,
        rng: Random | None = None,
        identity: ClientIdentity | None = None,
    ) -> None:
        """``name_servers``: ``host:port``, several separated by semicolons."""
        self._config = config or ProducerConfig()
        self._loop = asyncio.get_running_loop()
        self._wall_clock = wall_clock
        rng = rng or Random()
        identity = identity or local_identity(rng)
        self._keys = UniqueKeys(identity, wall_clock)
        self._handlers: dict[int, Handler] = {}
        """Handlers of brokers' requests, by code."""
        self._remoting = RemotingClient(
            self._loop, self._handlers, on_lost=self._lost, security=security_of(self._config)
        )
        self._routes = Routes(self._loop, self._remoting, parse_name_servers(name_servers), rng)
        faults = LatencyFaults() if self._config.send_latency_fault_enable else None
        self._queue_selector = QueueSelector(
            self._loop, self._routes, rng, self._config.default_queues, faults
        )
        self._send_dispatcher = self.send_dispatcher_class(
            loop=self._loop,
            remoting=self._remoting,
            routes=self._routes,
            queue_selector=self._queue_selector,
            config=self._config,
            faults=faults,
        )
        self._templates: dict[str, SendTemplates] = {}
        self._pending_replies = PendingReplies(self._loop, identity.client_id)
        self._handlers[int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)] = (
            self._pending_replies.replied
        )
        self._reply_sender = ReplySender(
            self._loop, self._remoting, self._routes, self._config, wall_clock
        )
        self._heartbeats = ProducerHeartbeats(
            loop=self._loop,
            remoting=self._remoting,
            routes=self._routes,
            group=self._config.group,
            client_id=identity.client_id,
            request_seconds=self._config.request_seconds,
        )

    async def start(self) -> None:
        """Begins to renew routes."""
        self._routes.start()

    async def close(self) -> None:
        """Ends requests in progress with an error, and closes the connections."""
        self._pending_replies.close()
        await self._send_dispatcher.close()
        await self._heartbeats.close()
        self._routes.close()
        await self._remoting.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of the topic; for a topic that a message creates, its future queues.

        Raises a :class:`ClientError` if it has none, or no NameServer can be asked.
        """
        route = await self._queue_selector.route(topic)
        if not route.write_queues:
            raise NoQueueError(topic)
        return route.write_queues

    async def send(self, message: Message, queue: MessageQueue | None = None) -> SendResult:
        """Sends one message, to ``queue`` or to the next queue in turn.

        Raises :class:`RefusedError` if a broker refuses it, :class:`DeadlineError` after the
        deadline (the message may be stored), or another :class:`ClientError`.
        """
        return await self.send_nowait(message, queue)

    async def send_by_key(self, message: Message, key: str) -> SendResult:
        """Sends to the queue of ``key``. Messages of one key are in order if each waits for the
        one before it. Raises as :meth:`send`.
        """
        queues = await self.queues(message.topic)
        return await self.send_nowait(message, queues[queue_index(key, len(queues))])

    async def send_one_way(self, message: Message, queue: MessageQueue | None = None) -> None:
        """Sends once and waits for no answer: the message may be lost without an error.

        Raises a :class:`ClientError` if no broker for it is known.
        """
        target = self._queue_selector.at_once(message.topic, queue)
        if target is None:
            target = await self._queue_selector.search(message.topic, queue, ())
        delivery = self._delivery(message, queue)
        values = (*delivery.values, target.queue.queue_id)
        self._remoting.push_template(target.address, delivery.template, values, delivery.body)

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Sends messages of one topic to one queue. All are stored, in this order and without other
        messages between them, or none. Raises as :meth:`send`.
        """
        return await self.send_batch_nowait(messages, queue)

    async def recall(self, result: SendResult) -> None:
        """Recalls a timed message. Calling it twice is harmless.

        Raises :class:`IllegalMessageError` if ``result`` has no recall handle,
        :class:`RefusedError` if the message has been delivered, and another :class:`ClientError` if
        the outcome is unknown.
        """
        topic, handle = result.queue.topic, result.recall_handle
        if not handle:
            raise IllegalMessageError("a message without a recall handle cannot be recalled")
        ext = {"producerGroup": self._config.group, "topic": topic, "recallHandle": handle}

        async def ask(address: str) -> None:
            answer = await self._remoting.invoke(
                address, RequestCode.RECALL_MESSAGE, ext, timeout=self._config.request_seconds
            )
            check_success(address, answer)

        await until_answered(
            self._routes,
            result.queue,
            ask,
            seconds=self._config.deadline_seconds,
            operation=f"the recall of a message of {topic}",
        )

    async def request(
        self, message: Message, timeout_seconds: float = 3.0, queue: MessageQueue | None = None
    ) -> Reply:
        """Sends a message and waits for its consumer's reply.

        Raises :class:`NoReplyError` if none came in time (the message may still be consumed), and
        otherwise as :meth:`send`.
        """
        correlation_id = self._keys.next()
        added = self._pending_replies.properties(correlation_id, timeout_seconds)
        delivery = self._delivery(message.with_properties(added), queue, key=correlation_id)
        delivery.deadline = self._loop.time() + timeout_seconds
        reply = self._pending_replies.expect(correlation_id)
        try:
            async with asyncio.timeout_at(delivery.deadline):
                # The send meets the same error, and retries longer.
                with suppress(ClientError):
                    route = await self._queue_selector.route(message.topic)
                    # A host that does not answer may cost no more: others may take the message.
                    seconds = timeout_seconds / 8
                    await self._heartbeats.join(message.topic, route.leaders(), seconds)
                self._send_dispatcher.begin(delivery)
                await asyncio.wait((delivery.future, reply), return_when=asyncio.FIRST_COMPLETED)
                if not reply.done():
                    result = delivery.future.result()
                    self._heartbeats.meet(message.topic, {result.queue.broker: delivery.address})
                return await reply
        except (TimeoutError, DeadlineError):
            raise NoReplyError(
                f"no reply to a request to {message.topic} in {timeout_seconds:g} s"
            ) from None
        finally:
            self._pending_replies.forget(correlation_id)
            if not delivery.future.cancel():
                delivery.future.exception()  # retrieved, so that the loop does not log it

    async def reply(
        self,
        request: ReceivedMessage,
        body: Bytes,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Replies to a message that a client in any language has sent as a request
        (:meth:`request`).

        Raises :class:`IllegalMessageError` for a message that is not a request,
        :class:`NoReplyError` if the client that asked was not reached in its waiting time, and
        another :class:`ClientError`.
        """
        await self._reply_sender.reply(request, body, properties or {})

    def send_nowait(
        self, message: Message, queue: MessageQueue | None = None
    ) -> asyncio.Future[SendResult]:
        """As :meth:`send`; the request leaves at the end of this turn of the event loop.

        Raises :class:`IllegalMessageError` at once for what no broker would take.
        """
        delivery = self._delivery(message, queue)
        self._send_dispatcher.begin(delivery)
        return delivery.future

    def send_batch_nowait(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> asyncio.Future[SendResult]:
        """As :meth:`send_batch`; the request leaves at the end of this turn of the event loop.

        Raises :class:`IllegalMessageError` at once for what no broker would take.
        """
        if not messages:
            raise IllegalMessageError("a batch has at least one message")
        topic = messages[0].topic
        if queue is not None:
            _check_queue(topic, queue)
        templates = self._templates.get(topic) or self._new_templates(topic)
        first = self._keys.take(len(messages))
        body = batch_body(messages, self._keys.prefix, first)
        delivery = PendingSend(
            topic,
            templates.batch,
            batch_values(self._wall_clock(), messages[0].compressed),
            body,
            self._keys.key(first),
            queue,
            self._loop.time() + self._config.deadline_seconds,
            self._loop.create_future(),
            count=len(messages),
        )
        self._send_dispatcher.begin(delivery)
        return delivery.future

    def _delivery(
        self,
        message: Message,
        queue: MessageQueue | None,
        *,
        key: str | None = None,
        sys_flag: int = 0,
    ) -> PendingSend:
        """The request for a single message with the unique ``key``."""
        topic, body = message.topic, message.body
        if queue is not None:
            _check_queue(topic, queue)
        if len(body) > BODY_SIZE_MAX:
            raise IllegalMessageError(
                f"a body of {len(body)} bytes exceeds the limit of {BODY_SIZE_MAX}"
            )
        templates = self._templates.get(topic) or self._new_templates(topic)
        config, loop = self._config, self._loop
        if message.compressed:
            sys_flag |= message.compressed
        elif len(body) > config.compress_over_bytes > 0:
            body, compressed = compress_body(body, config.compression_type)
            sys_flag |= compressed
        if key is None:
            key = self._keys.next()
        return PendingSend(
            topic,
            templates.single,
            single_values(message, key, self._wall_clock(), sys_flag),
            body,
            key,
            queue,
            loop.time() + config.deadline_seconds,
            loop.create_future(),
            properties_size=KEY_PROPERTY_SIZE + len(message.property_bytes),
        )

    def _lost(self, address: str) -> None:
        self._heartbeats.lost(address)

    def _new_templates(self, topic: str) -> SendTemplates:
        templates = SendTemplates(self._config.group, topic, self._config.default_queues)
        self._templates[topic] = templates
        return templates


def _check_queue(topic: str, queue: MessageQueue) -> None:
    """Raises :class:`IllegalMessageError` for a queue of another topic. A request has only the
    number of a queue, so the message would be stored in that queue of its own topic.
    """
    if queue.topic != topic:
        raise IllegalMessageError(f"a message of {topic} cannot go to a queue of {queue.topic}")
