"""A new leader hears of the clients that have their Telemetry streams here."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.grpc.call import Call
from broker.grpc.clients import Session
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from tests.broker.grpc.single_service import CLIENT, METADATA, SingleService
from tests.broker.single_broker import ELECTION_SECONDS, running_broker
from tests.support.virtual_network import NetworkedLoop


async def test_it_is_told_once_and_nobody_waits_for_it_before(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """An election has several steps. Thousands of clients, told at each, would take the places in
    which calls wait for the leader."""
    async with running_broker(loop, tmp_path, serving=False) as broker:
        service = SingleService(broker)
        clients, node = service.service.clients, service.context.node
        session = Session(Call("Telemetry", METADATA, CLIENT), lambda _command: None)
        settings = df.Settings(
            client_type=df.ClientType.PRODUCER,
            publishing=df.Publishing(topics=[df.Resource(name="orders")]),
        )
        session.settings = pb.TelemetryCommand(settings=settings).SerializeToString()
        clients.opened(session)
        steps = list[tuple[bool, asyncio.Task[None] | None]]()

        def leadership_changed() -> None:
            service.service.leadership_changed()
            steps.append((node.serving, session.told))

        broker.broker.on_leadership.append(leadership_changed)
        leadership_changed()
        await asyncio.sleep(ELECTION_SECONDS)
        *before, (serving, told) = steps
        assert len(before) >= 3
        assert set(before) == {(False, None)}
        assert serving
        assert told is not None
        assert "orders" in service.context.clients.producers
        await service.service.close()
