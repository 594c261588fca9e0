"""The HTTP port of a follower forwards messages to that of the leader.

The request is forwarded unchanged. The leader checks its ``Authorization`` again, but does not know
the client's address. A client that is allowed only by its address gets a refusal with the leader's
address. The header :data:`FORWARDED` tells the receiver not to forward the request again, so there
are no loops. Without a known leader a request waits for one (:mod:`broker.leader_wait`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import aiohttp
import orjson
from aiohttp import hdrs, web

from broker.config.client_security import client_security
from broker.context import BrokerContext
from broker.errors import NoAnswerError
from broker.http.access import ACCOUNT
from broker.http.errors import NOTHING_DONE, OUTCOME, json_response
from broker.http.node_tls import NodeTls
from broker.leader_wait import LeaderWait
from broker.limits import FORWARDING

FORWARDED = "Dledger-Forwarded"


def _was_allowed_by_address(request: web.Request, status: int) -> bool:
    """Whether the leader refuses a request that this node allowed by the client's address."""
    if status == HTTPStatus.FORBIDDEN:
        return request.get(ACCOUNT) == ""
    return status == HTTPStatus.UNAUTHORIZED


class HttpForwarder:
    """Forwards messages, for one HTTP port."""

    def __init__(
        self,
        context: BrokerContext,
        leader_address: Callable[[], str | None],
    ) -> None:
        """``leader_address`` gives the address of the leader's HTTP port; None if this node leads
        or the address is unknown."""
        self.forwarded = 0
        """The number of requests forwarded since the start."""
        self._leader_address = leader_address
        self._tls = NodeTls(client_security(context.config.security))
        self._leader_wait = LeaderWait(
            context.loop, context.config.node, lambda: context.node.leadership.leader
        )
        self.leadership_changed = self._leader_wait.leadership_changed
        self._session: aiohttp.ClientSession | None = None

    async def close(self, _app: web.Application) -> None:
        """Closes the connections. The outcome of forwarded requests is unknown."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def serve_or_forward(
        self,
        request: web.Request,
        body: bytes | bytearray,
        serve: Callable[[], Awaitable[web.Response]],
    ) -> web.Response:
        """The answer of ``serve``, or the leader's to the same request with its ``body``.

        Raises the error of ``serve`` if the request may not be forwarded or no leader appeared in
        time.
        """

        async def forward(refusal: Exception) -> web.Response | None:
            address = self._leader_address()
            answer = None if address is None else await self._ask(address, request, body)
            if answer is not None and _was_allowed_by_address(request, answer.status):
                raise refusal
            return answer

        return await self._leader_wait.serve_or_forward(
            serve, None if FORWARDED in request.headers else forward
        )

    async def _ask(
        self, address: str, request: web.Request, body: bytes | bytearray
    ) -> web.Response | None:
        """The answer of that node; None if it does not lead, or nothing listens there. Raises
        :class:`~broker.errors.NoAnswerError`."""
        self.forwarded += 1

        async def post(url: str, with_keys: bool) -> tuple[aiohttp.ClientResponse, object]:
            headers = {FORWARDED: "1"}
            if with_keys and hdrs.AUTHORIZATION in request.headers:
                headers[hdrs.AUTHORIZATION] = request.headers[hdrs.AUTHORIZATION]
            async with self._opened().post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                content = await response.content.readexactly(self._size(response))
                return response, orjson.loads(content)

        try:
            response, document = await self._tls.ask(f"{address}{request.rel_url.raw_path}", post)
            if type(document) is not dict:
                raise ValueError("the answer is not a JSON object")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            return None
        except (aiohttp.ClientError, TimeoutError, ValueError, EOFError) as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}") from error
        if document.get(OUTCOME) == NOTHING_DONE:
            return None
        answer = json_response(document, response.status)
        if hdrs.RETRY_AFTER in response.headers:
            answer.headers[hdrs.RETRY_AFTER] = response.headers[hdrs.RETRY_AFTER]
        return answer

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=FORWARDING.answer_seconds, sock_connect=FORWARDING.wait_seconds
                ),
                # The port limits the requests. A request that waits for a connection would not
                # be sent, but be answered as if it had been.
                connector=self._tls.connector(limit=0),
            )
        return self._session

    def _size(self, response: aiohttp.ClientResponse) -> int:
        """The size of the answer's body in bytes. Raises ``ValueError`` if it is missing or too
        large."""
        size = response.content_length
        if size is None or size > FORWARDING.http_answer_max:
            raise ValueError(f"an answer of {size} bytes")
        return size
