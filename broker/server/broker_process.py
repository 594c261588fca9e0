"""One broker process: the ports, threads and files of a :class:`~broker.server.broker.Broker`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from random import SystemRandom
from typing import Any

from broker.config.node_config import NodeConfig
from broker.http.server import HttpServer
from broker.limits import HTTP, DescriptorLimits
from broker.remoting.server import RemotingServer
from broker.server.broker import Broker, Environment
from broker.server.name_server_registration import Registrar
from broker.system.file_descriptor_limits import (
    ConnectionLimits,
    connections_of_broker,
    raise_file_limit,
)
from broker.system.uncaught_errors import fatal_error_of
from broker.system.wall_clock import system_clock_ms
from dledger.config import PeerLimits
from dledger.node.executor import Executors, ThreadExecutor
from dledger.node.startup_repair import open_repaired
from dledger.raft.configuration import FIRST_INCARNATION
from dledger.wire.websocket_transport import WebSocketTransport
from store.errors import DamagedLogError, StoreError
from store.index_rebuild import Rebuild
from store.io.async_io import AsyncWrites
from store.io.descriptor_reserve import DescriptorReserve
from store.io.os_filesystem import OsFileSystem
from store.replica import ReplicaStore, StoreConfig

log = logging.getLogger(__name__)


class BrokerProcess:
    """A running broker. ``failed`` is done, with the reason, when the node stopped by itself."""

    def __init__(
        self,
        config: NodeConfig,
        store: ReplicaStore,
        fs: OsFileSystem,
        writes: AsyncWrites | None,
        connections: ConnectionLimits,
    ) -> None:
        """``writes`` does what ``fs`` begins, and has this process tell it when something ended."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._config = config
        self._store = store
        self._writes = writes
        self._fs = fs
        if writes is not None:
            loop.add_reader(writes.fileno(), writes.completed)
        self._executors = Executors(
            log=ThreadExecutor(loop, "log"),
            reads=ThreadExecutor(loop, "reads"),
            background=ThreadExecutor(loop, "background"),
        )
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        loop.set_exception_handler(self._unhandled)
        self.broker = Broker(
            config,
            store,
            Environment(
                fs=fs,
                transport=_transport(config, connections.peers),
                executors=self._executors,
                loop=loop,
                rng=SystemRandom(),
                wall_clock=system_clock_ms,
            ),
            self._fail,
        )
        host, port = config.own.address
        self._server = RemotingServer(loop, host, port, self.broker.dispatch, connections.remoting)
        self._registrar = Registrar(loop, config.namesrv, self.broker.announcement)
        self._http = HttpServer(
            self.broker.context, replace(HTTP, connections_max=connections.http)
        )

    async def start(self) -> None:
        """Recovers, joins the group, opens the ports, registers. ``OSError`` if a port is taken."""
        await self.broker.start()
        await self._server.start()
        self.broker.on_announcement_changed = self._registrar.register_now
        self._registrar.start()
        await self._http.start()
        # Nobody is to wait for NumPy on the event loop, where it looks at rows
        # (`delivery/corrupt_rows.py`).
        self._executors.background.submit(
            lambda: import_module("numpy"), lambda _numpy, _error: None
        )

    async def stop(self) -> None:
        """Says goodbye to the NameServers, answers who waits, and saves what is in memory."""
        self.broker.on_announcement_changed = lambda: None
        await self._registrar.stop()
        await self._http.stop()
        await self.broker.stop()
        await self._server.stop()
        for executor in (self._executors.log, self._executors.reads, self._executors.background):
            executor.close()
        self._store.close()  # which a node has done that ever ran
        if self._writes is not None:
            self._loop.remove_reader(self._writes.fileno())
            self._writes.close()
        self._fs.close()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that no code expected: a node that goes on half alive is worse than none.

        Errors of single sockets are none of that kind.
        """
        loop.default_exception_handler(context)
        error = fatal_error_of(context)
        if error is not None:
            self.broker.context.node.fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(error)


async def _open_store(
    config: NodeConfig, fs: OsFileSystem, connections: ConnectionLimits
) -> ReplicaStore:
    settings = StoreConfig(
        config.group,
        config.node,
        config.segment_size,
        incarnation=SystemRandom().randrange(FIRST_INCARNATION, 1 << 62),
        direct=config.flush == "sync",
        alone=not config.peers,
    )
    return await open_repaired(
        fs,
        config.data,
        settings,
        lambda: _transport(config, connections.peers),
        asyncio.get_running_loop(),
        config.peers,
        prepare=Rebuild(fs, config.data).run,
    )


def _transport(config: NodeConfig, connections_max: int) -> WebSocketTransport:
    usual = PeerLimits()
    return WebSocketTransport(
        group=config.group,
        node=config.node,
        host=config.own.peer.host,
        port=config.own.peer.port,
        peers=config.peers,
        limits=replace(usual, ungreeted_max=min(usual.ungreeted_max, connections_max // 2)),
    )


async def serve(config: NodeConfig) -> BrokerProcess:
    """Starts the broker of ``config``.

    Waits for its peers where its log is damaged and they must put it right. Raises
    :class:`~store.errors.StoreError` where its data cannot be used, and ``OSError`` where a port is
    taken; nothing keeps running then.
    """
    limits = DescriptorLimits()
    connections = connections_of_broker(raise_file_limit(limits), limits)
    while True:
        process = await _opened(config, connections)
        try:
            await process.start()
        except DamagedLogError as error:
            # Seen only as what is derived was made again: peers can put it back before that.
            await process.stop()
            if not config.peers:
                raise
            log.error("%s; the log is opened anew, to be mended", error)
        except (OSError, StoreError):
            await process.stop()
            raise
        else:
            return process


async def _opened(config: NodeConfig, connections: ConnectionLimits) -> BrokerProcess:
    clock = asyncio.get_running_loop().time
    writes = AsyncWrites.open(clock) if config.flush == "sync" else None
    fs = OsFileSystem(writes, DescriptorReserve())
    with ExitStack() as unless_opened:
        unless_opened.callback(fs.close)
        if writes is not None:
            unless_opened.callback(writes.close)
        store = await _open_store(config, fs, connections)
        unless_opened.pop_all()
    return BrokerProcess(config, store, fs, writes, connections)
