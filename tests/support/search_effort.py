"""How long random tests search: briefly in ``make test``, longer on request, and for a fifth as
long in ``make quick``.

    DLEDGER_TEST_EFFORT=50 python -m pytest tests/store/test_replica_model.py

searches fifty times as many examples. A failure is shrunk, and printed with what repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")

EXAMPLES = 100
"""Of a property that says nothing else, in ``make test``."""

QUICK_EXAMPLES = 20
"""The same in ``make quick``."""


def searching(examples: int = EXAMPLES, steps: int = 50) -> settings:
    """Settings of a test with this many examples and steps, at an effort of 1."""
    effort = float(os.environ.get("DLEDGER_TEST_EFFORT", "1"))
    return settings(
        max_examples=max(1, round(examples * effort * settings().max_examples / EXAMPLES)),
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def sample(cases: Iterable[T]) -> list[T]:
    """What a test is parametrised with that goes through many cases of one kind: all of them, and
    each fifth in ``make quick``."""
    return [*cases][:: max(1, EXAMPLES // settings().max_examples)]
