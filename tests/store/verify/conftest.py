"""A replica on a simulated disk."""

from __future__ import annotations

import pytest

from simulator.engine.disk import SimulatedFileSystem
from tests.store.sample_replica import Replica, write_replica
from tests.store.small_logs import simulated


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


@pytest.fixture
def replica(fs: SimulatedFileSystem) -> Replica:
    return write_replica(fs)
