"""``POST /topics/T/recalls {"recall_handle": "..."}``: takes a timed message back."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from broker.context import BrokerContext
from broker.http.errors import bad_request, json_response
from broker.http.forwarding import HttpForwarder
from broker.http.json_body import decode_json
from broker.http.memory_budget import MEMORY
from dledger.settle import settle


class RecallHandler:
    """Recalls messages whose time has not come. A codec, like those of the other wires."""

    def __init__(self, context: BrokerContext, forwarder: HttpForwarder) -> None:
        self._context = context
        self._forwarder = forwarder

    async def post(self, request: web.Request) -> web.Response:
        """See the module. The handle is that of the answer to the send."""
        read = await request.app[MEMORY].read(request)
        handle = _handle(decode_json(read))
        topic = request.match_info["topic"]
        return await self._forwarder.serve_or_forward(
            request, read, partial(self._recall, topic, handle)
        )

    async def _recall(self, topic: str, handle: str) -> web.Response:
        recalled: asyncio.Future[str] = self._context.loop.create_future()
        self._context.recalls.recall(topic, handle, partial(settle, recalled))
        return json_response({"unique_key": await recalled})


def _handle(document: object) -> str:
    match document:
        case {"recall_handle": str(handle), **others} if not others:
            return handle
    raise bad_request("the request is not a JSON object with recall_handle, a string, alone")
