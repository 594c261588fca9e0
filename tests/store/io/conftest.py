"""The tests of file calls make them all."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_power_loss() -> None:
    """They sync as in production."""
