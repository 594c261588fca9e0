"""``POST /snapshot {"directory": "/absolute/path"}``: this node's snapshot, on its own machine.

Answers the manifest once the snapshot is complete. The directory must be new or empty.
"""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus

import orjson
from aiohttp import web

from broker.context import BrokerContext
from broker.http.errors import HttpRefusedError, json_response
from broker.http.memory import MEMORY
from store.errors import SnapshotError


class SnapshotHandler:
    """Makes snapshots of one broker's node."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def post(self, request: web.Request) -> web.Response:
        """See the module. A refusal is 409 and says what to do."""
        try:
            document = orjson.loads(await request.app[MEMORY].read(request))
        except orjson.JSONDecodeError as error:
            raise HttpRefusedError(
                HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}"
            ) from error
        directory = document.get("directory") if isinstance(document, dict) else None
        if not isinstance(directory, str) or not directory:
            raise HttpRefusedError(
                HTTPStatus.BAD_REQUEST, 'the body must be {"directory": "/absolute/path"}'
            )
        context = self._context
        try:
            manifest = await context.node.snapshots.take(directory, context.wall_clock())
        except SnapshotError as error:
            raise HttpRefusedError(HTTPStatus.CONFLICT, str(error)) from error
        return json_response({"directory": directory, **asdict(manifest)})
