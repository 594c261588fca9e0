"""The broker of the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.client.real_broker import served_broker
from tests.broker.single_broker import SingleBroker
from tests.support.virtual_network import NetworkedLoop


@pytest.fixture
async def broker(loop: NetworkedLoop, tmp_path: Path) -> AsyncIterator[SingleBroker]:
    """A broker that is registered at the NameServer, and has a topic."""
    async with served_broker(loop, tmp_path) as broker:
        yield broker
