"""Forwards calls that only the leader can serve, over the remoting port of the brokers.

So they have TLS and the cluster's signature like any request between brokers. Wire: request code
:data:`RequestCode.FORWARD_GRPC`, whose body is the encoded request. Field ``call`` is a JSON object
``{"method", "client", "metadata", "seconds"}``. The body of the answer has the encoded answers,
each after its size as u32. The account that signed the call is checked again by the leader.

If the client goes, or its broker waits no longer, that broker says so on the same connection,
one-way, with code :data:`RequestCode.CANCEL_GRPC`. Field ``number`` is that of the call: a broker
numbers the calls that it forwards. The leader ends the call, so that no messages are received which
nobody gets.

The receiver does not forward a call again, so there are no loops. Without a known leader a call
waits for one (:mod:`broker.leader_wait`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Any

import orjson

from broker.errors import ANSWERED, NoAnswerError
from broker.grpc.call import TELEMETRY, Call
from broker.grpc.dispatcher import Dispatcher
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.statuses import BadCallError
from broker.limits import FORWARDING
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection, Handler
from broker.remoting.error_responses import refuse
from broker.remoting.protocol.codes import (
    OUTCOME,
    OUTCOME_NOT_LEADER,
    RequestCode,
    ResponseCode,
)
from broker.remoting.protocol.errors import (
    CallError,
    FieldError,
    RequestError,
    RequestTimeoutError,
    RequestTooLargeError,
)
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import NO_SECURITY, ClientSecurity

_SIZE = Struct(">I")
CALL = "call"
NUMBER = "number"
MARGIN_SECONDS = 5.0
"""Pace: how much longer than the client this broker waits for the leader. A client without a
deadline counts as one that waits for ``FORWARDING.answer_seconds``."""


class GrpcForwarder:
    """Forwards calls, for one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        own_address: str,
        leader_address: Callable[[], str | None],
        *,
        on_command: Handler,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """``leader_address`` gives the leader's address as ``host:port``; None while no leader is
        known. ``on_command`` takes the leader's commands to clients of this broker, code
        :data:`RequestCode.GRPC_COMMAND`."""
        self._own_address = own_address
        self._leader_address = leader_address
        self._client = RemotingClient(
            loop, {RequestCode.GRPC_COMMAND: on_command}, security=security
        )
        self.forwarded = 0
        """The number of calls forwarded since the start."""

    async def forward(self, call: Call, body: bytes) -> Sequence[bytes] | None:
        """The answers of the leader. None: no other node is known to lead, that node does not lead,
        or nothing listens there.

        Raises :class:`~broker.errors.NoAnswerError` if the leader did not answer.
        """
        address = self._leader_address()
        if address is None or address == self._own_address:
            return None
        # With a deadline the leader holds no receive for longer than this broker waits.
        seconds = FORWARDING.answer_seconds if call.seconds is None else max(call.seconds, 0.0)
        self.forwarded += 1
        number = {NUMBER: str(self.forwarded)}
        ext = {CALL: _pack(call, seconds)} | number
        try:
            answer = await self._client.invoke(
                address, RequestCode.FORWARD_GRPC, ext, (body,), timeout=seconds + MARGIN_SECONDS
            )
        except asyncio.CancelledError:
            self._client.push(address, RequestCode.CANCEL_GRPC, number)
            raise
        except RequestTooLargeError as error:
            raise BadCallError(Code.PAYLOAD_TOO_LARGE, str(error)) from error
        except CallError as error:
            if isinstance(error, RequestTimeoutError):
                self._client.push(address, RequestCode.CANCEL_GRPC, number)
            if not error.was_sent:
                return None
            raise NoAnswerError(error) from error
        if answer.ext.get(OUTCOME) == OUTCOME_NOT_LEADER:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise NoAnswerError(answer.remark)
        return _unpack_answers(answer.body)

    async def close(self) -> None:
        """Closes the connections. The outcome of forwarded calls is unknown."""
        await self._client.close()


class ForwardedCalls:
    """Serves the calls that other brokers forward, code :data:`RequestCode.FORWARD_GRPC`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        on_telemetry: Callable[[Connection, Call, bytes], Awaitable[Sequence[bytes]]],
    ) -> None:
        """``on_telemetry`` takes commands of other brokers' clients from their Telemetry
        streams."""
        self._dispatcher = dispatcher
        self._on_telemetry = on_telemetry
        self._calls: dict[tuple[Connection, int], tuple[asyncio.Task[None], Frame]] = {}
        """The calls in progress of other brokers, by number, with their requests."""

    def serve(self, connection: Connection, request: Frame) -> None:
        """A call ends with the connection of the forwarding broker, so that no messages are
        received for clients that are gone. Raises
        :class:`~broker.remoting.protocol.errors.FieldError` for an invalid call."""
        call = _unpack(ext_str(request, CALL))
        if call.method != TELEMETRY and call.method not in self._dispatcher.methods:
            raise FieldError(f"{CALL} names no method")
        number = ext_int(request, NUMBER, request.opaque)  # an earlier program does not number them
        key = connection, number
        if key in self._calls:
            raise FieldError(f"the call {number} is in progress already")
        task = connection.run(self._serve(connection, request, call))
        if task is not None:
            self._calls[key] = task, request
            task.add_done_callback(lambda _task: self._calls.pop(key, None))

    def cancel(self, connection: Connection, request: Frame) -> None:
        """Code :data:`RequestCode.CANCEL_GRPC`: ends a call whose client is gone, if it is still in
        progress."""
        key = connection, ext_int(request, NUMBER)
        task, call = self._calls.get(key, (None, request))
        if task is not None:
            task.cancel()
            connection.respond(call, ResponseCode.SYSTEM_ERROR, "the client is gone")

    async def _serve(self, connection: Connection, request: Frame, call: Call) -> None:
        try:
            if call.method == TELEMETRY:
                answers = await self._on_telemetry(connection, call, request.body)
            else:
                answers = await self._dispatcher.serve(call, request.body)
        except (*ANSWERED, RequestError) as error:
            # The leadership has gone, or it is the error of a command in a Telemetry stream.
            refuse(connection, request, error)
            return
        parts = [part for each in answers for part in (_SIZE.pack(len(each)), each)]
        connection.respond(request, body=(b"".join(parts),))


def _pack(call: Call, seconds: float) -> str:
    told = {
        "method": call.method,
        "client": call.client,
        "metadata": dict(call.metadata),
        "seconds": seconds,
    }
    return orjson.dumps(told).decode()


def _unpack(text: str) -> Call:
    try:
        told: Any = orjson.loads(text)
        method, client, metadata = told["method"], told["client"], told["metadata"]
        seconds = told["seconds"]
    except (ValueError, TypeError, KeyError) as error:
        raise FieldError(f"{CALL} is not a call: {error}") from None
    texts = (
        [method, client, *metadata, *metadata.values()] if type(metadata) is dict else [metadata]
    )
    if any(type(each) is not str for each in texts) or type(seconds) not in (
        float,
        int,
        type(None),
    ):
        raise FieldError(f"{CALL} is not a call")
    return Call(method, metadata, client, forwarded=True, seconds=seconds)


def _unpack_answers(body: bytes) -> Sequence[bytes]:
    """The encoded answers. Raises :class:`FieldError` if the last one is cut short."""
    answers = []
    start = 0
    while start < len(body):
        begin = start + _SIZE.size
        start = begin + int.from_bytes(body[start:begin], "big")
        if start > len(body):
            raise FieldError("the answers to a forwarded call are cut short")
        answers.append(body[begin:start])
    return answers
