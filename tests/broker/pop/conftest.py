"""Brokers of the tests of POP: their clock runs, as receipts end with time."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}
