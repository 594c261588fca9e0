"""The load over HTTP, against a port that answers at once and one that refuses."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from broker.bench.http_load import HttpLoadError, send_by_http
from broker.bench.jobs import HttpJob, LoadShape


async def rounds_on(server: BaseTestServer, size: int) -> list[int]:
    job = HttpJob(f"{server.host}:{server.port}", "orders", size, LoadShape(1, 3), 0.0, 0.05, 2, ())
    return [each.messages for each in await send_by_http(job, Random(1))]


@pytest.mark.processes
async def test_each_request_is_a_message_of_the_size() -> None:
    sizes: list[int] = []

    async def store(request: web.Request) -> web.Response:
        assert request.match_info["topic"] == "orders"
        sizes.append(len(orjson.loads(await request.read())["body"]))
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/topics/{topic}/messages", store)
    async with TestServer(app) as server:
        counts = await rounds_on(server, 101)
    assert min(counts) > 0
    assert sum(counts) == len(sizes)
    assert set(sizes) == {101}


@pytest.mark.processes
async def test_a_refusal_ends_the_load() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=503, text="no leader")

    app = web.Application()
    app.router.add_post("/topics/{topic}/messages", refuse)
    async with TestServer(app) as server:
        with pytest.raises(HttpLoadError, match="503: no leader"):
            await rounds_on(server, 10)
