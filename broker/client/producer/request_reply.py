"""Request-reply: a consumer replies to a message.

The request is an ordinary message whose properties name the client that asks. The reply (325) is
not stored: the broker passes it on (326) to that client, over the connection of its heartbeat. So a
client sends a heartbeat to the leaders of the topic before it sends a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.client.config import ProducerConfig
from broker.client.errors import (
    AccessDeniedError,
    ClientError,
    ClosedError,
    Failure,
    IllegalMessageError,
    NoReplyError,
    UndecodableBodyError,
    refusal,
)
from broker.client.message import PROPERTY_CLUSTER, Bytes
from broker.client.received_message import ReceivedMessage, decompressed
from broker.client.route.route_cache import Routes
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError, ClientClosedError, FieldError
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.topics_and_groups import reply_topic
from store.message.compressed_body import SYS_FLAG_COMPRESSED, compress_body
from store.message.properties import decode_properties, encode_properties

logger = logging.getLogger("dledger.client")

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TIME_TO_LIVE = "TTL"
"""The property with the waiting time of the client that asks, in milliseconds."""

TIME_TO_LIVE_DIGITS = 15
"""The most digits of that time. ``int`` takes at most 4300."""

MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"


class Reply(NamedTuple):
    """The reply to a request."""

    body: bytes
    properties: Mapping[str, str]


class PendingReplies:
    """The requests of one client that wait for their replies."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str) -> None:
        self._loop = loop
        self._client_id = client_id
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    def properties(self, correlation_id: str, timeout_seconds: float) -> bytes:
        """The properties that make a message a request of this client."""
        return encode_properties(
            {
                CORRELATION_ID: correlation_id,
                REPLY_TO_CLIENT: self._client_id,
                TIME_TO_LIVE: str(max(int(timeout_seconds * 1000), 1)),
            }
        )

    def expect(self, correlation_id: str) -> asyncio.Future[Reply]:
        """Awaits a reply with that id, until :meth:`forget`."""
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[correlation_id] = reply
        return reply

    def forget(self, correlation_id: str) -> None:
        """Ends the wait for a reply."""
        self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        """Fails all waiting requests."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ClosedError("the producer was closed"))

    def replied(self, connection: Connection, request: Frame) -> None:
        """Request 326. A late reply is acknowledged too, as RocketMQ's clients do: its sender
        cannot use an error."""
        properties = decode_properties(ext_str(request, "properties", "").encode())
        correlation_id = properties.get(CORRELATION_ID, "")
        try:
            sys_flag = ext_int(request, "sysFlag", 0)
            compressed = sys_flag & SYS_FLAG_COMPRESSED
            body = decompressed(request.body, sys_flag) if compressed else request.body
        except UndecodableBodyError as error:
            raise FieldError(f"the reply to {correlation_id}: {error}") from None
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            logger.debug("a reply to %s came too late", correlation_id)
        else:
            waiting.set_result(Reply(body, properties))
        connection.respond(request)


class ReplySender:
    """Replies to requests that this client's program has consumed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        remoting: RemotingClient,
        routes: Routes,
        config: ProducerConfig,
        wall_clock: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._remoting = remoting
        self._routes = routes
        self._config = config
        self._wall_clock = wall_clock

    async def reply(
        self, request: ReceivedMessage, body: Bytes, properties: Mapping[str, str]
    ) -> None:
        """Retries until the waiting time of the client that asked is over: after a failover that
        client must find the new leader first.

        Raises :class:`IllegalMessageError` for a message that is not a request,
        :class:`NoReplyError` if the client that asked was not reached, and another
        :class:`ClientError`.
        """
        header, body = self._encoded(request, body, properties)
        queue = request.queue
        seconds, last = self._seconds(request), None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    failure = await self._try(request, header, body)
                    if failure is None:
                        return
                    last = failure
                    await self._routes.recover(queue.topic, queue.broker)
        except TimeoutError:
            raise NoReplyError(
                f"the reply to message {request.message_id} was not delivered "
                f"in {seconds:g} s; last: {last}"
            ) from None

    async def _try(
        self, request: ReceivedMessage, header: dict[str, str], body: Bytes
    ) -> Failure | None:
        """Sends the reply once. Returns a retriable failure, or None; raises any other error."""
        queue = request.queue
        try:
            await self._routes.get(queue.topic)
            address = self._routes.leader(queue)
            answer = await self._remoting.invoke(
                address,
                RequestCode.SEND_REPLY_MESSAGE_V2,
                header,
                (body,),
                timeout=self._config.request_seconds,
            )
        except ClientClosedError:
            raise ClosedError("the producer was closed") from None
        except (CallError, ClientError) as error:
            if not error.retriable:
                raise
            return error
        if answer.code == ResponseCode.SUCCESS:
            return None
        refused = refusal(queue.broker, answer.code, answer.remark)
        # Code 1: the client that asked is not connected there, or did not answer. It may be
        # connecting.
        if isinstance(refused, AccessDeniedError) or (
            not refused.retriable and answer.code != ResponseCode.SYSTEM_ERROR
        ):
            raise refused
        return refused

    def _seconds(self, request: ReceivedMessage) -> float:
        given = request.properties.get(TIME_TO_LIVE, "")
        if not (given.isascii() and given.isdigit() and len(given) <= TIME_TO_LIVE_DIGITS):
            return self._config.request_seconds
        return min(int(given) / 1000, self._config.deadline_seconds)

    def _encoded(
        self, request: ReceivedMessage, body: Bytes, properties: Mapping[str, str]
    ) -> tuple[dict[str, str], Bytes]:
        asked = request.properties
        needed = (CORRELATION_ID, REPLY_TO_CLIENT, PROPERTY_CLUSTER)
        missing = [name for name in needed if name not in asked]
        if missing:
            raise IllegalMessageError(
                f"message {request.message_id} is not a request: it has no {', '.join(missing)}"
            )
        every = {
            **properties,
            MESSAGE_TYPE: REPLY,
            CORRELATION_ID: asked[CORRELATION_ID],
            REPLY_TO_CLIENT: asked[REPLY_TO_CLIENT],
            TIME_TO_LIVE: asked.get(TIME_TO_LIVE, ""),
        }
        sys_flag = 0
        if len(body) > self._config.compress_over_bytes > 0:
            body, sys_flag = compress_body(body, self._config.compression_type)
        try:
            encoded = encode_properties(every).decode()
        except ValueError as error:
            raise IllegalMessageError(str(error)) from None
        header = {
            "a": self._config.group,
            "b": reply_topic(asked[PROPERTY_CLUSTER]),
            "c": "",
            "d": "0",
            "e": "0",
            "f": str(sys_flag),
            "g": str(self._wall_clock()),
            "h": "0",
            "i": encoded,
            "j": "0",
            "k": "false",
            "m": "false",
        }
        return header, body
