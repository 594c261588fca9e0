"""Probes while a broker opens its data."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from broker.http.opening import OPENS
from broker.limits import HTTP
from broker.server.broker import Broker
from broker.server.broker_server import BrokerServer, open_broker
from broker.server.environment import BrokerLimits, Environment
from dledger.node.executor import Executors
from dledger.wire.endpoint import Endpoint
from store.index_rebuild import request_rebuild
from store.io.os_filesystem import OsFileSystem
from tests.broker.http.site import HOST, Curl
from tests.broker.single_broker import NOW_MS, NoPeers
from tests.support.fake_executor import FakeExecutor
from tests.support.virtual_network import NetworkedLoop

PORT = 8080


class Opened:
    """A broker that is opened in a lane that the test holds."""

    def __init__(self, loop: NetworkedLoop, data: Path) -> None:
        self._loop = loop
        self.lane = FakeExecutor(loop)
        self.closed = 0
        self._config = NodeConfig(
            group="broker-a",
            node="n0",
            data=str(data),
            members={
                "n0": Member(
                    Endpoint("127.0.0.1", 40911),
                    Endpoint("127.0.0.1", 10911),
                    Endpoint("127.0.0.1", PORT),
                )
            },
            namesrv=("127.0.0.1:9876",),
            segment_size=1 << 20,
            max_message_size=64 << 10,
        )

    def open(self) -> asyncio.Task[BrokerServer[Broker]]:
        loop = self._loop
        environment = Environment(
            fs=OsFileSystem(),
            make_transport=NoPeers,
            executors=Executors(FakeExecutor(loop), FakeExecutor(loop), FakeExecutor(loop)),
            loop=loop,
            rng=Random(1),
            wall_clock=lambda: NOW_MS,
            clock=loop.time,
            new_incarnation=lambda: 0,
            opening=self.lane,
            close=self._close,
        )
        limits = BrokerLimits(http=HTTP, min_free_bytes=0)
        return loop.create_task(open_broker(self._config, environment, limits, Broker))

    def _close(self) -> None:
        self.closed += 1

    async def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        """What the HTTP port answers."""
        near, curl = await self._loop.create_connection(lambda: Curl(self._loop), "", PORT)
        assert isinstance(near, asyncio.Transport)
        assert isinstance(curl, Curl)
        near.write(f"{method} {path} HTTP/1.1\r\n{HOST}\r\nConnection: close\r\n\r\n".encode())
        return await curl.answer()


async def test_a_broker_lives_and_is_not_ready_while_it_opens_and_rebuilds_its_data(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    opened = Opened(loop, tmp_path)

    async def lives_only() -> None:
        await asyncio.sleep(60)
        assert await opened.ask("/livez") == (200, {"status": "ok", "node": "broker-a/n0"})
        told = {"status": OPENS, "node": "broker-a/n0", "error": OPENS}
        for path in ("/readyz", "/healthz", "/metrics", "/", "/topics/T/messages"):
            assert await opened.ask(path) == (503, told)
        assert await opened.ask("/topics/T/messages", "POST") == (503, told)

    opened.lane.hold()
    opening = opened.open()
    await lives_only()
    opened.lane.release()
    server = await opening
    request_rebuild(OsFileSystem(), str(tmp_path))
    opened.lane.hold()
    starting = loop.create_task(server.start())
    await lives_only()
    opened.lane.release()
    await starting
    await asyncio.sleep(5)
    for path in ("/livez", "/readyz"):
        assert (await opened.ask(path))[0] == 200
    await server.stop()
    assert PORT not in loop.listening


async def test_who_stops_an_opening_or_a_rebuild_closes_the_port(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    opened = Opened(loop, tmp_path)
    opened.lane.hold()
    opening = opened.open()
    await asyncio.sleep(1)
    opening.cancel()
    await asyncio.sleep(1)
    assert not opening.done()
    assert opened.closed == 0  # the lane may have the files
    opened.lane.release()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert opened.closed == 1
    assert PORT not in loop.listening
    server = await opened.open()
    assert PORT in loop.listening
    await server.stop()
    assert PORT not in loop.listening


async def test_the_start_tells_that_the_port_is_taken_and_the_opening_goes_on(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(loop, tmp_path)
    create_server = loop.create_server

    async def taken(
        factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int
    ) -> object:
        if port == PORT:
            raise OSError(errno.EADDRINUSE, "taken")
        return await create_server(factory, host, port, backlog=backlog)

    monkeypatch.setattr(loop, "create_server", taken)
    server = await opened.open()
    with pytest.raises(OSError, match="taken"):
        await server.start()
    await server.stop()
