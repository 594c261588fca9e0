"""Brokers of the tests of transactions. Their clock runs, because check-backs depend on time."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}
