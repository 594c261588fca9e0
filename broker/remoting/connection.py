"""One connection: frames in, answers and requests out. Both ends use the same class."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias, cast

from broker.errors import Refusal
from broker.limits import RemotingLimits
from broker.remoting.byte_budget import ByteBudget
from broker.remoting.frame_writer import FrameWriter, Sign
from broker.remoting.incomplete_frames import IncompleteFrame
from broker.remoting.protocol.addresses import NO_HOST, host_bytes
from broker.remoting.protocol.codes import FLAG_RESPONSE
from broker.remoting.protocol.errors import (
    HANDLER_FAULTS,
    CallError,
    ConnectionLostError,
    FrameError,
    RequestError,
)
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.frame_reader import FrameReader
from broker.remoting.turn_limit import TURN_BYTES, TurnLimit
from dledger.wire.endpoint import join_host_port
from store.quoting import FROM_OUTSIDE, shortened

logger = logging.getLogger("dledger.remoting")

HEAVY_SECONDS = 10.0
"""How long a connection stays behind others after it used half a turn and had more to handle."""

UNPROVEN_SECONDS = 1.0
"""A new or silent connection stays behind others until it is known for so long. Otherwise a heavy
client could reconnect to count as a light one."""

UNLIMITED = RemotingLimits(turn_frames=sys.maxsize, turn_seconds=math.inf)
"""For a client's end, whose turns are not limited."""

Handler: TypeAlias = "Callable[[Connection, Frame], None]"
"""Takes a request. It answers at once or later, with ``connection.respond``, or raises
:class:`RequestError` or one of :data:`broker.errors.ANSWERED`; it never waits."""


Forward: TypeAlias = "Callable[[Connection, Frame, Refusal], bool]"
"""Takes over a request that was refused with an error, or returns False."""


class Connection(FrameWriter, asyncio.Protocol):
    """A connection, from before it is made until after it is lost.

    Requests of the peer go to ``dispatch``, one after the other, in the turn of the event loop in
    which they arrive. If too many arrive at once, the rest waits for later turns
    (``remoting/turn_limit.py``). The answers leave in one write once everything that arrived is
    handled.
    """

    __slots__ = (
        "_budget",
        "_dispatch",
        "_frames",
        "_held_until",
        "_hold",
        "_in_line",
        "_incomplete_frame",
        "_last_heavy",
        "_light",
        "_may_answer",
        "_on_close",
        "_reader",
        "_tasks",
        "_turn_limit",
        "_used",
        "forward",
        "number",
        "refusals",
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
        budget: ByteBudget | None = None,
        turns: TurnLimit | None = None,
        sign: Sign | None = None,
        refusals: Counter[str] | None = None,
    ) -> None:
        """``budget`` limits the bytes of requests that are not handled yet; ``turns`` limits their
        time; ``refusals`` counts refused requests by reason. The connections of a server share all
        three."""
        super().__init__(loop, limits, address=address, serialization=serialization, sign=sign)
        self._dispatch = dispatch
        self.number = number
        """A server numbers its connections in the order in which it accepts them. 0 on the client's
        end."""
        self.refusals: Counter[str] = Counter() if refusals is None else refusals
        self._incomplete_frame = IncompleteFrame(loop, limits, self.refuse, budget)
        self._reader = FrameReader(self._incomplete_frame.keeps)
        self._turn_limit = turns or TurnLimit(loop, UNLIMITED)
        self._budget = budget
        self._frames: Iterator[Frame] | None = None
        """Frames that wait for another turn. Nothing is read meanwhile."""
        self._hold: asyncio.TimerHandle | None = None
        """Nothing is read until it fires."""
        self._held_until = 0.0
        """The loop's time when the longest hold ends. The timer itself does not know it: of less
        than half a millisecond uvloop makes a plain call."""
        self._may_answer = True
        """Whether waiting requests may be handled now: the peer reads the answers."""
        self._in_line = False
        """Whether a turn is scheduled for these frames."""
        self._last_heavy = math.inf
        """The loop's time when it last used half a turn; infinite before anything has come."""
        self._light = False
        self._used = 0.0
        """CPU seconds that it used since its requests began to wait."""
        self._on_close: list[Callable[[Connection], None]] | None = []
        """None once the connection is lost."""
        self._tasks: set[asyncio.Task[None]] | None = None
        """None until there is one."""
        self.remote_host_bytes = NO_HOST
        """The peer as a message record stores it: 4 bytes of IPv4 address, i32 port."""
        self.forward: Forward | None = None
        """Forwards requests that only the leader can serve."""

    def respond_refused(self, request: Frame, error: RequestError) -> None:
        """Counts a request that this wire itself refuses, and answers it."""
        self.refusals[error.reason] += 1
        self.respond(request, error.code, error.remark)

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Calls back once, when the connection is lost; soon if it already is."""
        if self._on_close is None:
            self._loop.call_soon(callback, self)
        else:
            self._on_close.append(callback)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Runs a task that serves a request, and ends with the connection. None: it is lost."""
        if self._on_close is None:
            work.close()
            return None
        task = self._loop.create_task(work)
        if self._tasks is None:
            self._tasks = set()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Closes once everything written has left."""
        if not self._closed:
            self._flush()
            self._closed = True
            if self._transport is not None:
                self._transport.close()

    def oldest_request(self) -> int | None:
        """The opaque of the request that has waited longest; None if none waits."""
        return next(iter(self._pending.waiting), None)

    def abort(
        self, failure: type[CallError] = ConnectionLostError, reason: str = "aborted"
    ) -> None:
        """Closes at once; waiting requests end with ``failure``."""
        self._closed = True
        self._pending.fail_all(failure, reason)
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, why: str, *args: object) -> None:
        """Closes at once, and logs the reason (``why % args``). Peers can cause that at will."""
        logger.warning(f"%s: closed: {why}", self.remote_address, *args, extra=FROM_OUTSIDE)
        self.abort(reason=why % args)

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._closed:  # closed while it was being made
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_high)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.remote_address = self.remote_address or join_host_port(peer[0], peer[1])
            self.remote_host_bytes = host_bytes(peer[0], peer[1])
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.last_active = now = self._loop.time()
        turns = self._turn_limit
        if self._last_heavy > now:
            self._last_heavy = now - HEAVY_SECONDS + UNPROVEN_SECONDS
        frames = self._reader.feed(data)
        if turns.at != now:
            turns.begin(now)
        if turns.left > 0 and self._handle(frames):
            return
        if self._budget is not None:
            self._budget.keep(self, len(data))
        self._light = now - self._last_heavy >= HEAVY_SECONDS
        self._used = 0.0
        self._wait_for_turn(frames)

    def _handle(self, frames: Iterator[Frame]) -> bool:
        """Handles the frames. Returns False if the turn ended first, or if answers must be written
        first."""
        turns, clock = self._turn_limit, self._turn_limit.clock
        dispatch, limited = self._dispatch, turns.is_limited
        unwritten_max = self._limits.write_buffer_high
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
                        self.respond_refused(frame, error)
                    except HANDLER_FAULTS as error:
                        self.respond_fault(frame, error)
                if self._closed:
                    return True
                if limited:
                    turns.left -= 1 + len(frame.body) // TURN_BYTES
                if self._out_size > unwritten_max or (
                    limited
                    and (turns.left <= turns.low or clock() > turns.ends_at)
                    and turns.is_over()
                ):
                    return False
        except FrameError as error:
            self.refuse("it does not speak RocketMQ's protocol (%s)", shortened(error))
        except HANDLER_FAULTS as error:  # a peer may send anything; only its connection ends
            logger.error(
                "%s: closed: it cannot be read",
                self.remote_address,
                exc_info=error,
                extra=FROM_OUTSIDE,
            )
            self.abort(reason=f"{type(error).__name__}: {shortened(error)}")
        finally:
            if flushes and self._out:
                self._flush()
            elif flushes:
                self._flush_due = False
        return True

    def _wait_for_turn(self, frames: Iterator[Frame]) -> None:
        if self._closed:
            return
        self._frames = frames
        self._set_reading()
        if self._may_answer and not self._in_line:
            self._in_line = True
            self._turn_limit.wait(self._go_on, light=self._light)

    def _go_on(self) -> None:
        self._in_line = False
        if self._closed or not self._may_answer:
            return
        frames, self._frames = self._frames, None
        if frames is None:
            return
        cpu_clock = self._turn_limit.cpu_clock
        began = cpu_clock()
        done = self._handle(frames)
        self._used += cpu_clock() - began
        if self._used > self._limits.turn_seconds / 2:
            self._light = False
            self._last_heavy = self._loop.time()
        if not done:
            self._wait_for_turn(frames)
            return
        if self._budget is not None:
            self._budget.keep(self, 0)
        self._set_reading()

    @property
    def _reads(self) -> bool:
        """Whether more is read now."""
        return self._frames is None and self._hold is None and self._may_answer

    def hold_reading(self, seconds: float) -> None:
        """Reads nothing for so long, because the peer is beyond a quota. The longest hold
        counts."""
        if self._closed:
            return
        until = self._loop.time() + seconds
        if until <= self._held_until:
            return
        self._held_until = until
        if self._hold is not None:
            self._hold.cancel()
        self._hold = self._loop.call_at(until, self._read_again)
        self._set_reading()

    def _read_again(self) -> None:
        self._hold = None
        self._set_reading()

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
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        if self._budget is not None:
            self._budget.keep(self, 0)
        self._out.clear()
        self._out_size = 0
        self._reader.clear()
        self._incomplete_frame.close()
        self._pending.fail_all(ConnectionLostError, str(exc) if exc else "closed by the peer")
        for task in self._tasks or ():
            task.cancel()
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            callback(self)
