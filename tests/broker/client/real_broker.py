"""Our client and a real broker, with a real NameServer between them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.nameserver.server import NameServer
from broker.server.name_server_registration import Registrar
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

NAME_SERVER = "127.0.0.1:9876"
TOPIC = "orders"


@asynccontextmanager
async def served_broker(
    loop: NetworkedLoop, data: Path, **settings: Any
) -> AsyncIterator[SingleBroker]:
    """A broker that serves and is found, and has the topic ``TOPIC``."""
    async with running_broker(loop, data, clock_runs=True, **settings) as broker:
        names = NameServer(loop, "127.0.0.1", 9876)
        await names.start()
        registrar = Registrar(loop, broker.config.namesrv, broker.broker.announcements.current)
        broker.broker.announcements.on_changed = registrar.register_now
        registrar.start()
        await broker.create_topic(TOPIC, queues=1)
        await asyncio.sleep(1)
        try:
            yield broker
        finally:
            await registrar.stop()
            await names.stop()


def break_connections(broker: SingleBroker) -> None:
    """Clients lose what they wait for; they can connect again at once."""
    for connection in list(broker.server.connections):
        connection.abort()
