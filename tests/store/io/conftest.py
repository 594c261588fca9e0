"""The tests of file calls really sync."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_power_loss() -> None:
    """Overrides the fixture of all tests: syncs are real here."""
