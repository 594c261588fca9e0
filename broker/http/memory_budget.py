"""The memory of requests and answers of the HTTP port: one budget for all connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from broker.errors import UnavailableError
from broker.http.errors import HttpRefusedError, bad_request, refusal_response
from broker.limits import HttpLimits
from store.quoting import shortened


class MemoryBudget:
    """Counts the used memory, and reads bodies."""

    def __init__(self, limits: HttpLimits, body_size_max: int) -> None:
        """``body_size_max`` is the largest body of a request, in bytes."""
        self.held = 0
        """The counted bytes. The first bytes of each request do not count."""
        self.body_size_max = body_size_max
        self._limits = limits
        self._max = max(limits.memory_max, body_size_max)

    @web.middleware
    async def account(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Counts the memory of a request until the client has read the answer."""
        with self._holding() as held:
            request[HELD] = held
            response = await handler(request)
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and len(body) > self._limits.free_bytes:
                try:
                    held.hold(len(body))
                except UnavailableError as error:
                    return refusal_response(
                        HttpRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
                    )
                with suppress(ConnectionError):
                    await response.prepare(request)
                    await response.write_eof()
                    await request.writer.drain()
            return response

    async def read(self, request: web.Request) -> bytearray:
        """The body of the request.

        Raises :class:`~broker.http.errors.HttpRefusedError` if it is too large, too slow, cut short
        or compressed, and :class:`~broker.errors.UnavailableError` if there is no room for it now.
        """
        size_max = self.body_size_max
        if encoding := request.headers.get(hdrs.CONTENT_ENCODING, ""):
            raise HttpRefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the encoding {shortened(encoding)} is not supported",
            )
        if (request.content_length or 0) > size_max:
            raise _too_large(size_max)
        held, limits, time = request[HELD], self._limits, asyncio.get_running_loop().time
        started_at = time()
        body = bytearray()
        try:
            async with asyncio.timeout(limits.stall_seconds) as timeout:
                while chunk := await request.content.readany():
                    if len(body) + len(chunk) > size_max:
                        raise _too_large(size_max)
                    held.hold(len(body) + len(chunk))
                    body += chunk
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


def _too_large(size_max: int) -> HttpRefusedError:
    return HttpRefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {size_max} bytes"
    )
