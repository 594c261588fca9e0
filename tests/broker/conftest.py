"""Fixtures: a broker that is alone, its HTTP port and its gRPC service, started and stopped.

A test with other settings than its module takes the fixture ``loop``, and calls
``running_broker``, ``running_site`` or ``running_service``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.grpc.single_service import SingleService, service_of
from tests.broker.http.site import Site, served
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    """Arguments of the broker, besides the usual ones. A module or a folder may have its own."""
    return {}


@pytest.fixture
async def broker(
    loop: NetworkedLoop, tmp_path: Path, broker_settings: dict[str, Any]
) -> AsyncIterator[SingleBroker]:
    """A broker that serves."""
    async with running_broker(loop, tmp_path, **broker_settings) as broker:
        yield broker


@pytest.fixture
async def site(broker: SingleBroker) -> AsyncIterator[Site]:
    """Its HTTP port."""
    async with served(broker) as site:
        yield site


@pytest.fixture
async def service(broker: SingleBroker) -> AsyncIterator[SingleService]:
    """Its gRPC service."""
    async with service_of(broker) as service:
        yield service
