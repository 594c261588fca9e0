"""The sending half of a connection: answers, requests, and the write that sends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from broker.limits import RemotingLimits
from broker.remoting.pending_requests import Done, PendingRequests
from broker.remoting.protocol.codes import FLAG_ONE_WAY, ResponseCode
from broker.remoting.protocol.errors import (
    CallError,
    ConnectionLostError,
    RequestTooLargeError,
    TooManyRequestsError,
)
from broker.remoting.protocol.fixed_headers import RequestTemplate, TemplateValues
from broker.remoting.protocol.frame import (
    FRAME_BODY_SIZE_MAX,
    HEADER_SIZE_MAX,
    Frame,
    encode_request,
    encode_response,
    fits_frame,
)
from dledger.settle import settle
from store.quoting import FROM_OUTSIDE, shortened

Bytes: TypeAlias = bytes | bytearray | memoryview

Sign: TypeAlias = Callable[[Mapping[str, str] | None, Sequence[Bytes]], Mapping[str, str]]
"""Signs a request with its body: returns its ext fields and those of the signature."""

_JOIN_SIZE_MAX = 64 * 1024
"""Pace: up to this size in bytes, joining the buffers of a turn is cheaper than a call for each."""

logger = logging.getLogger("dledger.remoting")


class FrameWriter:
    """Sends over the transport of a connection.

    Frames leave in one write at the end of the turn of the event loop, or once the reading half has
    handled everything that arrived. Before the transport is there, frames wait for it.
    """

    __slots__ = (
        "_closed",
        "_flush_due",
        "_limits",
        "_loop",
        "_out",
        "_out_size",
        "_pending",
        "_serialization",
        "_sign",
        "_transport",
        "_unsent_max",
        "last_active",
        "remote_address",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: RemotingLimits,
        *,
        address: str = "",
        serialization: int = 0,
        sign: Sign | None = None,
    ) -> None:
        """``sign``: signs each request that is sent."""
        self._loop = loop
        self._limits = limits
        self._serialization = serialization
        self._sign = sign
        self._pending = PendingRequests(loop, address)
        self._transport: asyncio.Transport | None = None
        self._out: list[Bytes] = []
        self._out_size = 0
        self._unsent_max = 0
        """The size of the transport's buffer after the last write: the upper bound of its present
        size."""
        self._flush_due = False
        self._closed = False
        self.remote_address = address
        """The peer as ``host:port``."""
        self.last_active = loop.time()
        """The loop's time of the last frame in or out."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection is lost or being closed. Nothing is sent then."""
        return self._closed

    @property
    def was_made(self) -> bool:
        """Whether there was a transport, so that frames may have left."""
        return self._transport is not None

    @property
    def buffered(self) -> int:
        """Bytes that the operating system has not taken yet."""
        if self._transport is None:
            return self._out_size
        return self._out_size + self._transport.get_write_buffer_size()

    def respond(
        self,
        request: Frame,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),
    ) -> None:
        """Answers ``request``, now or at any later time on the loop's thread.

        ``body`` is sent part after part, and its parts must not change afterwards. A one-way
        request gets no answer, and one whose connection is gone cannot get any: both are ignored.
        If no frame can hold the body, the answer says so: the peer would close the connection.
        """
        if self._closed or request.flag & FLAG_ONE_WAY:
            return
        body_size = sum(map(len, body)) if body else 0
        if body_size > FRAME_BODY_SIZE_MAX:
            code, ext, body = ResponseCode.SYSTEM_ERROR, None, ()
            remark = (
                f"the answer has {body_size} bytes, no frame holds more than {FRAME_BODY_SIZE_MAX}"
            )
            body_size = 0
        self._send(encode_response(request, code, remark, ext, body_size), body, body_size)

    def respond_encoded(self, request: Frame, head: bytes) -> None:
        """As :meth:`respond`, with an encoded answer without a body."""
        if self._closed or request.flag & FLAG_ONE_WAY:
            return
        self._out.append(head)
        self._out_size += len(head)
        if not self._flush_due and self._transport is not None:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def respond_fault(self, request: Frame, error: Exception) -> None:
        """Answers a request in whose handler an unexpected error arose (``HANDLER_FAULTS``)."""
        logger.error(
            "%s: %r failed", self.remote_address, request, exc_info=error, extra=FROM_OUTSIDE
        )
        # The text of an OSError may name a path of this node.
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        what = f"{type(error).__name__}: {shortened(reason)}"
        self.respond(request, ResponseCode.SYSTEM_ERROR, what)

    def push(
        self, code: int, ext: Mapping[str, str] | None = None, body: Sequence[Bytes] = ()
    ) -> None:
        """Sends a one-way request. It may be lost with the connection, and is if no frame can hold
        it."""
        if self._closed or self.buffered > self._limits.write_buffer_max:
            return
        self._request(code, self._pending.take_opaque(), ext, body, FLAG_ONE_WAY)

    def push_template(self, template: RequestTemplate, values: TemplateValues, body: Bytes) -> None:
        """As :meth:`push`, with a header that ``values`` fill in."""
        if self._closed or self.buffered > self._limits.write_buffer_max:
            return
        opaque = self._pending.take_opaque()
        self._request_template(template, opaque, values, body, FLAG_ONE_WAY)

    def invoke(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),
        *,
        timeout: float,
    ) -> asyncio.Future[Frame]:
        """Sends a request; its future answer may also fail with a :class:`CallError`."""
        future: asyncio.Future[Frame] = self._loop.create_future()
        self.call(code, ext, body, timeout=timeout, done=partial(settle, future))
        return future

    def call(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),
        *,
        timeout: float,
        done: Done,
    ) -> None:
        """As :meth:`invoke`, without a future: ``done`` is called in the turn of the loop in which
        the answer arrives, and never before this returns."""
        if self._may_call(done):
            if self._request(code, self._pending.next_opaque, ext, body, 0):
                self._pending.add(timeout, done)
            else:
                self._too_large(done)

    def call_template(
        self,
        template: RequestTemplate,
        values: TemplateValues,
        body: Bytes,
        *,
        timeout: float,
        done: Done,
    ) -> None:
        """As :meth:`call`, with a header that ``values`` fill in."""
        if self._may_call(done):
            pending = self._pending
            if self._request_template(template, pending.next_opaque, values, body, 0):
                pending.add(timeout, done)
            else:
                self._too_large(done)

    def _too_large(self, done: Done) -> None:
        error = RequestTooLargeError(self.remote_address, "no frame can hold the request")
        self._loop.call_soon(done, None, error)

    def _may_call(self, done: Done) -> bool:
        """Whether one more request may be sent; if not, ``done`` gets the error."""
        if self._closed:
            error: CallError = ConnectionLostError(self.remote_address, "connection closed")
        else:
            limits, waiting = self._limits, self._pending.waiting
            if len(waiting) < limits.pending_max and (
                self._out_size + self._unsent_max <= limits.write_buffer_max
                or self.buffered <= limits.write_buffer_max
            ):
                return True
            error = TooManyRequestsError(self.remote_address, f"{len(waiting)} requests wait")
        self._loop.call_soon(done, None, error)
        return False

    def _request(
        self,
        code: int,
        opaque: int,
        ext: Mapping[str, str] | None,
        body: Sequence[Bytes],
        flag: int,
    ) -> bool:
        """Returns False if no frame can hold the request: then nothing is sent."""
        if self._sign is not None:
            ext = self._sign(ext, body)
        body_size = sum(map(len, body)) if body else 0
        head = encode_request(
            code, opaque, ext, body_size, flag=flag, serialization=self._serialization
        )
        if not fits_frame(head, body_size):
            return False
        self._send(head, body, body_size)
        return True

    def _request_template(
        self, template: RequestTemplate, opaque: int, values: TemplateValues, body: Bytes, flag: int
    ) -> bool:
        if self._sign is not None:
            return self._request(template.code, opaque, template.ext(values), (body,), flag)
        size = len(body)
        head = template.encode(flag, opaque, size, values)
        # Most requests are smaller than their header may be.
        if len(head) + size > HEADER_SIZE_MAX and not fits_frame(head, size):
            return False
        self._send(head, (body,), size)
        return True

    def _send(self, head: bytes, body: Sequence[Bytes], body_size: int) -> None:
        self._out.append(head)
        if body:
            self._out.extend(body)
        self._out_size += len(head) + body_size
        if not self._flush_due and self._transport is not None:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        out = self._out
        if not out or self._transport is None:
            return
        if self._transport.is_closing():  # it broke in this turn, and tells so in the next
            return
        if self._out_size <= _JOIN_SIZE_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        self._out = []
        self._out_size = 0
        self._unsent_max = self._transport.get_write_buffer_size()
        self.last_active = self._loop.time()
