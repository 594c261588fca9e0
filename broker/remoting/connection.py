"""One connection: frames in, answers and requests out, the same on both of its ends."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

from broker.limits import RemotingLimits
from broker.remoting.incomplete_frames import IncompleteFrame, IncompleteFrameBudget
from broker.remoting.pending_requests import Done, PendingRequests, settle
from broker.remoting.protocol.addresses import NO_HOST, host_bytes
from broker.remoting.protocol.codes import FLAG_ONE_WAY, FLAG_RESPONSE, ResponseCode
from broker.remoting.protocol.errors import (
    HANDLER_FAULTS,
    CallError,
    ConnectionLostError,
    FrameError,
    RequestError,
    TooManyRequestsError,
)
from broker.remoting.protocol.frame import (
    FRAME_BODY_SIZE_MAX,
    Frame,
    RequestTemplate,
    TemplateValues,
    encode_request,
    encode_response,
)
from broker.remoting.protocol.frame_reader import FrameReader
from broker.remoting.turn_limit import TURN_BYTES, TurnLimit
from store.quoting import FROM_OUTSIDE, shortened

Bytes: TypeAlias = bytes | bytearray | memoryview

_JOIN_SIZE_MAX = 64 * 1024
"""Pace: up to here joining the buffers of a turn is cheaper than a call with each of them."""

logger = logging.getLogger("dledger.remoting")


Handler: TypeAlias = "Callable[[Connection, Frame], None]"
"""Takes a request. It answers at once or later, with ``connection.respond``, or raises
:class:`RequestError`; it never waits."""


class Connection(asyncio.Protocol):
    """A connection, from before it is made until after it is lost.

    Requests of the peer go to ``dispatch``, one after the other, in the turn of the event loop in
    which they arrive, or in later ones where too many arrive at once (``remoting/turn_limit.py``).
    What is sent meanwhile leaves in one write once all that arrived is handled; what is sent at
    other times, in one write at the end of the turn. Before the transport is there, what is sent
    waits for it.
    """

    __slots__ = (
        "_closed",
        "_dispatch",
        "_flush_due",
        "_frames",
        "_incomplete_frame",
        "_limits",
        "_loop",
        "_on_close",
        "_out",
        "_out_size",
        "_pending",
        "_reader",
        "_serialization",
        "_transport",
        "_turn_limit",
        "_unsent_max",
        "last_active",
        "number",
        "remote_address",
        "remote_host_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatch: Handler,
        limits: RemotingLimits,
        *,
        address: str = "",
        serialization: int = 0,
        number: int = 0,
        budget: IncompleteFrameBudget | None = None,
        turns: TurnLimit | None = None,
    ) -> None:
        """``budget``: for frames that are not whole, shared with others of its server; so are
        ``turns``, for those that are."""
        self._loop = loop
        self._dispatch = dispatch
        self._limits = limits
        self.number = number
        """Among those that its server accepted: the later, the greater. 0 on the other end."""
        self._serialization = serialization
        self._incomplete_frame = IncompleteFrame(loop, limits, self.refuse, budget)
        self._reader = FrameReader(self._incomplete_frame.keeps)
        self._turn_limit = turns or TurnLimit(loop, sys.maxsize)
        self._frames: Iterator[Frame] | None = None
        """What arrived and waits for another turn; nothing is read meanwhile."""
        self._pending = PendingRequests(loop, address)
        self._transport: asyncio.Transport | None = None
        self._out: list[Bytes] = []
        self._out_size = 0
        self._unsent_max = 0
        """What the transport held when it was last given something: it has no more now."""
        self._flush_due = False
        self._closed = False
        self._on_close: list[Callable[[Connection], None]] | None = []
        """None once the connection is lost."""
        self.remote_address = address
        """The peer as ``host:port``."""
        self.remote_host_bytes = NO_HOST
        """The peer as a message record stores it: 4 bytes of IPv4 address, i32 port."""
        self.last_active = loop.time()
        """The loop's time at which something last went over the connection."""

    @property
    def is_closed(self) -> bool:
        """Whether it is lost or being closed; nothing is sent any more."""
        return self._closed

    @property
    def was_made(self) -> bool:
        """Whether there was a transport: what was sent may have left."""
        return self._transport is not None

    @property
    def buffered(self) -> int:
        """Bytes on their way out that the operating system has not taken yet."""
        if self._transport is None:
            return self._out_size
        return self._out_size + self._transport.get_write_buffer_size()

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Calls back once, when the connection is lost; soon if it already is."""
        if self._on_close is None:
            self._loop.call_soon(callback, self)
        else:
            self._on_close.append(callback)

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
        Where no frame can hold the body, the answer says so: the peer would close the connection.
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
        """As :meth:`respond`, with an answer encoded already, without a body."""
        if self._closed or request.flag & FLAG_ONE_WAY:
            return
        self._out.append(head)
        self._out_size += len(head)
        if not self._flush_due and self._transport is not None:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def respond_fault(self, request: Frame, error: Exception) -> None:
        """The answer where a handler stumbled over a request (``HANDLER_FAULTS``)."""
        logger.error(
            "%s: %r failed", self.remote_address, request, exc_info=error, extra=FROM_OUTSIDE
        )
        what = f"{type(error).__name__}: {shortened(error)}"
        self.respond(request, ResponseCode.SYSTEM_ERROR, what)

    def push(
        self, code: int, ext: Mapping[str, str] | None = None, body: Sequence[Bytes] = ()
    ) -> None:
        """Sends a one-way request. It may be lost with the connection."""
        if self._closed or self.buffered > self._limits.write_buffer_max:
            return
        self._request(code, self._pending.next_opaque(), ext, body, FLAG_ONE_WAY)

    def push_template(self, template: RequestTemplate, values: TemplateValues, body: Bytes) -> None:
        """As :meth:`push`, with a header that ``values`` fill in."""
        if self._closed or self.buffered > self._limits.write_buffer_max:
            return
        head = template.encode(FLAG_ONE_WAY, self._pending.next_opaque(), len(body), values)
        self._send(head, (body,), len(body))

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
        """As :meth:`invoke`, without a future: ``done`` is called when the answer arrives, in the
        turn of the loop in which it does, and never before this returns."""
        if self._may_call(done):
            opaque = self._pending.next_opaque()
            self._request(code, opaque, ext, body, 0)
            self._pending.add(opaque, timeout, done)

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
        if not self._may_call(done):
            return
        size = len(body)
        opaque = self._pending.next_opaque()
        head = template.encode(0, opaque, size, values)
        self._pending.add(opaque, timeout, done)
        self._send(head, (body,), size)

    def _may_call(self, done: Done) -> bool:
        """Whether one more request may be sent; where not, ``done`` is told why."""
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

    def close(self) -> None:
        """Closes after what is already written has left."""
        if not self._closed:
            self._flush()
            self._closed = True
            if self._transport is not None:
                self._transport.close()

    def abort(self, failure: type[CallError] = ConnectionLostError, what: str = "aborted") -> None:
        """Closes at once; waiting requests end with ``failure``."""
        self._closed = True
        self._pending.fail_all(failure, what)
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, why: str, *args: object) -> None:
        """Closes at once, and says in the log why (``why % args``); a peer can cause it at will."""
        logger.warning(f"%s: closed: {why}", self.remote_address, *args, extra=FROM_OUTSIDE)
        self.abort(what=why % args)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._closed:  # given up while it was being made
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_high)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.remote_address = self.remote_address or f"{peer[0]}:{peer[1]}"
            self.remote_host_bytes = host_bytes(peer[0], peer[1])
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        self._handle(self._reader.feed(data))

    def _handle(self, frames: Iterator[Frame]) -> None:
        turns = self._turn_limit
        if turns.left <= 0:
            self._wait_for_turn(frames)
            return
        dispatch = self._dispatch
        flushes = not self._flush_due
        self._flush_due = True
        try:
            for frame in frames:
                if frame.flag & FLAG_RESPONSE:
                    try:
                        self._pending.resolve(frame)
                    except HANDLER_FAULTS as error:
                        logger.error(
                            "%s: %r failed",
                            self.remote_address,
                            frame,
                            exc_info=error,
                            extra=FROM_OUTSIDE,
                        )
                else:
                    try:
                        dispatch(self, frame)
                    except RequestError as error:
                        self.respond(frame, error.code, error.remark)
                    except HANDLER_FAULTS as error:
                        self.respond_fault(frame, error)
                if self._closed:
                    return
                turns.left -= 1 + len(frame.body) // TURN_BYTES
                if turns.left <= turns.low:
                    if turns.left <= 0:
                        self._wait_for_turn(frames)
                        return
                    turns.renew_soon()
        except FrameError as error:
            self.refuse("it does not speak RocketMQ's protocol (%s)", shortened(error))
        except HANDLER_FAULTS as error:  # whatever a peer sends, it harms its connection alone
            logger.error(
                "%s: closed: it cannot be read",
                self.remote_address,
                exc_info=error,
                extra=FROM_OUTSIDE,
            )
            self.abort(what=f"{type(error).__name__}: {shortened(error)}")
        finally:
            if flushes and self._out:
                self._flush()
            elif flushes:
                self._flush_due = False

    def _wait_for_turn(self, frames: Iterator[Frame]) -> None:
        self._frames = frames
        self._set_reading()
        self._turn_limit.wait(self._go_on)

    def _go_on(self) -> None:
        frames, self._frames = self._frames, None
        if frames is None or self._closed:
            return
        self._handle(frames)
        if self._frames is None:
            self._set_reading()

    @property
    def _reads(self) -> bool:
        """Whether more is read now."""
        return self._frames is None

    def _set_reading(self) -> None:
        self._incomplete_frame.reads = self._reads
        if self._transport is None or self._transport.is_closing():
            return
        if self._reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._frames = None
        self._out.clear()
        self._out_size = 0
        self._reader.clear()
        self._incomplete_frame.close()
        self._pending.fail_all(ConnectionLostError, str(exc) if exc else "closed by the peer")
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            callback(self)

    def _request(
        self,
        code: int,
        opaque: int,
        ext: Mapping[str, str] | None,
        body: Sequence[Bytes],
        flag: int,
    ) -> None:
        body_size = sum(map(len, body)) if body else 0
        head = encode_request(
            code, opaque, ext, body_size, flag=flag, serialization=self._serialization
        )
        self._send(head, body, body_size)

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
        if self._out_size <= _JOIN_SIZE_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        self._out = []
        self._out_size = 0
        self._unsent_max = self._transport.get_write_buffer_size()
        self.last_active = self._loop.time()
