"""Our client and a real broker, with a real NameServer between them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from broker.nameserver.server import NameServer
from broker.server.name_server_registration import Registrar
from tests.broker.single_broker import SingleBroker, with_broker

NAME_SERVER = "127.0.0.1:9876"
TOPIC = "orders"


def with_served(
    scenario: Callable[[SingleBroker], Coroutine[Any, Any, None]], data: Path, **settings: Any
) -> None:
    """Runs ``scenario`` with a broker that serves and is found, and has the topic ``TOPIC``."""

    async def run(broker: SingleBroker) -> None:
        names = NameServer(broker.loop, "127.0.0.1", 9876)
        await names.start()
        registrar = Registrar(
            broker.loop, broker.config.namesrv, broker.broker.announcements.current
        )
        broker.broker.announcements.on_changed = registrar.register_now
        registrar.start()
        await broker.create_topic(TOPIC, queues=1)
        await asyncio.sleep(1)
        try:
            await scenario(broker)
        finally:
            await registrar.stop()
            await names.stop()

    with_broker(run, data, clock_runs=True, **settings)


def break_connections(broker: SingleBroker) -> None:
    """Clients lose what they wait for; they can connect again at once."""
    for connection in list(broker.server.connections):
        connection.abort()
