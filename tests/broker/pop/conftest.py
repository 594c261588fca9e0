"""Brokers of the tests of POP. Their clock runs, because receipts expire."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}
