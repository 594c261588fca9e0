"""The connections and routes of a client that sends its requests itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from broker.client.route.route_cache import Routes
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Handler
from broker.remoting.protocol.frame import Frame
from simulator.hosts.client_host import ClientHost
from simulator.workload.name_server import NAME_SERVERS
from store.io.filesystem import Bytes

REQUEST_SECONDS = 1.5


class ClientConnections:
    """Those of one process, on ``host``. ``handlers`` serve requests of brokers, by code."""

    def __init__(
        self, host: ClientHost, rng: Random, handlers: Mapping[int, Handler] | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.host = host
        self.remoting = RemotingClient(loop, handlers)
        self.routes = Routes(loop, self.remoting, [NAME_SERVERS], rng)

    async def ask(
        self, address: str, code: int, ext: Mapping[str, str], body: Sequence[Bytes] = ()
    ) -> Frame:
        """See :meth:`RemotingClient.invoke`."""
        return await self.remoting.invoke(address, code, ext, body, timeout=REQUEST_SECONDS)

    async def close(self) -> None:
        """Closes all of them."""
        self.routes.close()
        await self.remoting.close()
