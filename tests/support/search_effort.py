"""How long random tests search: briefly in ``make test``, longer on request.

    DLEDGER_TEST_EFFORT=50 python -m pytest tests/store/test_replica_model.py

searches fifty times as many examples. A failure is shrunk, and printed with what repeats it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def searching(examples: int, steps: int = 50) -> settings:
    """Settings of a test with this many examples and steps, at an effort of 1."""
    effort = float(os.environ.get("DLEDGER_TEST_EFFORT", "1"))
    return settings(
        max_examples=max(1, round(examples * effort)),
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
