"""The latency fault table."""

from __future__ import annotations

import pytest

from broker.client.producer.latency_faults import FAILED_LATENCY_MS, LatencyFaults


@pytest.mark.parametrize(
    ("latency_ms", "unused_ms"),
    [
        (549, 0),
        (550, 30_000),
        (1_000, 60_000),
        (2_000, 120_000),
        (3_000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
        (FAILED_LATENCY_MS, 600_000),
    ],
)
def test_a_slow_broker_is_left_alone_for_its_time(latency_ms: int, unused_ms: int) -> None:
    faults = LatencyFaults()
    faults.record("b", latency_ms, 1000)
    assert unused_ms == 0 or not faults.available("b", 1000 + unused_ms - 1)
    assert faults.available("b", 1000 + unused_ms)


def test_a_quick_answer_makes_up_for_a_slow_one() -> None:
    faults = LatencyFaults()
    faults.record("b", 5_000, 0)
    faults.record("b", 3, 10)
    assert faults.available("b", 10)


def test_where_none_is_available_the_first_that_will_be_is_least_bad() -> None:
    faults = LatencyFaults()
    faults.record("slow", 5_000, 0)
    faults.record("late", 600, 0)
    assert faults.least_bad(["slow", "late"]) == "late"
