"""``GET /``: a page that shows the group live; ``GET /nodes``: what it reads for that.

The page asks only the node that served it, which asks the other members: a browser may not be able
to reach them all.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from broker.context import BrokerContext
from broker.http.documents import status_document
from broker.http.errors import json_response

log = logging.getLogger(__name__)

PEER_SECONDS = 1.0
"""How long a member may take to answer before it is shown as down."""

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)


class Console:
    """The page, and the state of all members for it."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def page(self, _request: web.Request) -> web.Response:
        """See the module."""
        return web.Response(
            text=_page(),
            content_type="text/html",
            headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"},
        )

    async def nodes(self, _request: web.Request) -> web.Response:
        """``{"nodes": [...]}``: each member's own status, or why there is none."""
        own = status_document(self._context)
        members: dict[str, dict[str, str]] = own["members"]
        timeout = aiohttp.ClientTimeout(total=PEER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            others = await asyncio.gather(
                *[
                    _ask(session, name, at["http"])
                    for name, at in members.items()
                    if name != own["node"]
                ]
            )
        found = [own, *others]
        for status in found:
            status["http"] = members.get(status["node"], {}).get("http", "")
        return json_response({"nodes": sorted(found, key=lambda status: str(status["node"]))})


async def _ask(session: aiohttp.ClientSession, node: str, address: str) -> dict[str, Any]:
    try:
        async with session.get(f"http://{address}/status") as response:
            document: dict[str, Any] = await response.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        log.debug("%s does not tell its status: %s", node, error)
        return {"node": node, "role": "down", "error": f"no answer at {address}"}
    return {**document, "node": node}


@cache
def _page() -> str:
    return Path(__file__).with_name("console.html").read_text("utf-8")
