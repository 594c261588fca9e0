"""``GET /cluster`` and ``/nodes``: all broker groups. The asked node asks all others.

The console does the same, because a browser may not reach all nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from aiohttp import hdrs, web

from broker.config.client_security import client_security
from broker.context import BrokerContext
from broker.http.cluster_view import ClusterView, Document
from broker.http.errors import json_response
from broker.http.node_tls import NodeTls
from broker.limits import ADMIN
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.java_json import decode_json

PEER_SECONDS = 1.0
"""How long another node may take to answer before it is shown as down."""


class ClusterHandler:
    """Asks the NameServers for addresses, and the other nodes for their status."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._client: RemotingClient | None = None
        self._security = client_security(context.config.security)
        self._tls = NodeTls(self._security)

    async def nodes(self, request: web.Request) -> web.Response:
        """See :meth:`ClusterView.nodes`."""
        async with self.view(request.headers.get(hdrs.AUTHORIZATION)) as view:
            return json_response(await view.nodes())

    async def cluster(self, request: web.Request) -> web.Response:
        """See :meth:`ClusterView.document`."""
        async with self.view(request.headers.get(hdrs.AUTHORIZATION)) as view:
            return json_response(await view.document())

    async def close(self, _app: web.Application) -> None:
        """Closes the connections to the NameServers."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @asynccontextmanager
    async def view(self, authorization: str | None) -> AsyncIterator[ClusterView]:
        """Asks the other nodes as the caller of this node, with its header ``Authorization``."""
        session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=PEER_SECONDS),
            connector=self._tls.connector(),
        )
        keys: Mapping[str, str] = (
            {} if authorization is None else {hdrs.AUTHORIZATION: authorization}
        )

        async def ask(address: str, path: str) -> Document:
            async def get(url: str, with_keys: bool) -> Document:
                return await self._get(session, url, keys if with_keys else {})

            try:
                return await self._tls.ask(f"{address}{path}", get)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise OSError(f"{type(error).__name__}: {error}") from error

        async with session:
            yield ClusterView(self._context, self._names, ask)

    async def _get(
        self, session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        body = bytearray()
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > ADMIN.answer_bytes_max:
                    raise OSError(f"the answer has more than {len(body)} bytes")
        document = orjson.loads(body)
        if not isinstance(document, dict):
            raise OSError("the answer is not a JSON object")
        return document

    async def _names(self) -> dict[str, Any]:
        """The cluster info of the first NameServer that answers."""
        if self._client is None:
            self._client = RemotingClient(self._context.loop, security=self._security)
        for address in self._context.config.namesrv:
            try:
                answer = await self._client.invoke(
                    address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout=PEER_SECONDS
                )
                document = decode_json(answer.body)
            except (CallError, ValueError):
                continue
            if answer.code == ResponseCode.SUCCESS and isinstance(document, dict):
                return document
        return {}
