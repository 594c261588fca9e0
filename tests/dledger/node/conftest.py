"""A node that leads its group."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from simulator.engine.event_loop import VirtualLoop
from tests.dledger.node.member import Member, leading


@pytest.fixture
async def member(loop: VirtualLoop) -> AsyncIterator[Member]:
    async with leading(loop) as member:
        yield member
