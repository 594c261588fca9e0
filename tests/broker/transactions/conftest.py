"""Brokers of the tests of transactions: their clock runs, as checks come with time."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}
