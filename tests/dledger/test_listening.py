"""A port takes so many connections and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from aiohttp import web

from dledger.listening import BoundedSite, Refused


class Transport(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_connections_beyond_the_limit_are_refused_and_others_take_their_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    factories: list[Callable[[], asyncio.Protocol]] = []

    async def create_server(
        factory: Callable[[], asyncio.Protocol], *_args: object, **_named: object
    ) -> object:
        factories.append(factory)
        return None

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_server", create_server)
    runner = web.AppRunner(web.Application(), access_log=None)
    await runner.setup()
    await BoundedSite(runner, "127.0.0.1", 1, connections_max=2).start()
    (accept,) = factories
    accepted = [accept() for _ in range(2)]
    for protocol in accepted:
        protocol.connection_made(Transport())
    await turns()
    with caplog.at_level(logging.WARNING):
        refused = accept()
    assert isinstance(refused, Refused)
    assert "refused a connection: 2 are open" in caplog.text
    transport = Transport()
    refused.connection_made(transport)
    assert transport.aborted
    accepted[0].connection_lost(None)
    await turns()
    assert not isinstance(accept(), Refused)
    await runner.cleanup()
