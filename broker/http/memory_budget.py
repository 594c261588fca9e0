"""The memory of requests and answers of the HTTP port: one budget for all connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from broker.errors import UnavailableError
from broker.http.decoded_size import DecodedSize
from broker.http.errors import HttpRefusedError, bad_request
from broker.limits import HttpLimits
from store.quoting import shortened


class MemoryBudget:
    """Counts the used memory, and reads bodies."""

    def __init__(self, limits: HttpLimits, message_size_max: int) -> None:
        """``message_size_max`` is the size of the largest body of a message, in bytes."""
        self.held = 0
        """The counted bytes. The first bytes of each request do not count."""
        around = limits.around_body_bytes
        self.request_size_max = limits.escaped_factor * (message_size_max + around)
        """The size of the largest request, in bytes."""
        self._decoded_size_max = limits.body_factor * message_size_max + around
        self._limits = limits
        self._max = max(limits.memory_max, self.request_size_max)

    @web.middleware
    async def account(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Counts the memory of a request until the client has read the answer."""
        with self._holding() as held:
            request[HELD] = held
            response = await handler(request)
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and len(body) > self._limits.free_bytes:
                held.hold(len(body))
                with suppress(ConnectionError):
                    await response.prepare(request)
                    await response.write_eof()
                    await request.writer.drain()
            return response

    async def read(self, request: web.Request, too_large_as: str = "") -> bytearray:
        """The body of the request. A refusal because of its size is counted as ``too_large_as``.

        Raises :class:`~broker.http.errors.HttpRefusedError` if it is too large, too slow, cut short
        or compressed, and :class:`~broker.errors.UnavailableError` if there is no room for it now.
        """
        if encoding := request.headers.get(hdrs.CONTENT_ENCODING, ""):
            raise HttpRefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the encoding {shortened(encoding)} is not supported",
            )
        told = request.content_length  # None: it comes in chunks
        if (told or 0) > self.request_size_max:
            raise _too_large(f"{self.request_size_max} bytes", too_large_as)
        decoded_max = self._decoded_size_max
        # A string takes up to four bytes a character: what is decoded has a limit of its own. It is
        # counted piece by piece, in time that a request of usual size does not take.
        decoded = None if told is not None and told <= decoded_max else DecodedSize()
        held, limits, time = request[HELD], self._limits, asyncio.get_running_loop().time
        started_at = time()
        body = bytearray()
        try:
            async with asyncio.timeout(limits.stall_seconds) as timeout:
                while chunk := await request.content.readany():
                    if len(body) + len(chunk) > self.request_size_max:
                        raise _too_large(f"{self.request_size_max} bytes", too_large_as)
                    held.hold(len(body) + len(chunk))
                    body += chunk
                    if decoded is not None and decoded.of(body) > decoded_max:
                        raise _too_large(f"{decoded_max} bytes without escapes", too_large_as)
                    # The lowest allowed rate.
                    paid_until = started_at + len(body) / limits.body_bytes_per_second
                    timeout.reschedule(min(time(), paid_until) + limits.stall_seconds)
            return body
        except TimeoutError:
            raise HttpRefusedError(
                HTTPStatus.REQUEST_TIMEOUT, f"the body came too slowly: {len(body)} bytes so far"
            ) from None
        except (web.RequestPayloadError, ConnectionError, RuntimeError) as error:
            # The stream keeps its error, and the error keeps the frames of the waiter, which keep
            # the stream. The garbage collector runs seldom and would free this cycle late.
            error.__traceback__ = None
            raise bad_request(f"the body is cut short after {len(body)} bytes") from None

    @contextmanager
    def _holding(self) -> Iterator[MemoryLease]:
        held = MemoryLease(self)
        try:
            yield held
        finally:
            held.hold(0)

    def change(self, counted: int, size: int) -> int:
        """A request that counted for ``counted`` bytes now holds ``size`` bytes. Returns the bytes
        for which it counts now."""
        now = max(size - self._limits.free_bytes, 0)
        if now > counted and self.held - counted + now > self._max:
            raise UnavailableError(
                "too much is being sent and read over HTTP at the same time; try again"
            )
        self.held += now - counted
        return now


class MemoryLease:
    """The memory of one request."""

    __slots__ = ("_counted", "_memory")

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._counted = 0

    def hold(self, size: int) -> None:
        """Counts ``size`` bytes from now on, until the answer is sent.

        Raises :class:`~broker.errors.UnavailableError` if there is no room for them.
        """
        self._counted = self._memory.change(self._counted, size)


MEMORY = web.AppKey("memory", MemoryBudget)
HELD = web.RequestKey("held", MemoryLease)
"""A key of a request: its lease, set by :meth:`MemoryBudget.account`."""


def _too_large(most: str, counted_as: str) -> HttpRefusedError:
    return HttpRefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {most}", counted_as
    )
