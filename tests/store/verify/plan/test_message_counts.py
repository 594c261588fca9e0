"""Numbers of messages by topic and time are right, and few, for any number of minutes."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pytest

from store.verify.plan.message_counts import TIMES_MIN, MessageCounts

YEAR = 365 * 24 * 60


def by_span(exact: Counter[tuple[str, int]], span: int) -> dict[tuple[str, int], int]:
    found: Counter[tuple[str, int]] = Counter()
    for (topic, minute), messages in exact.items():
        found[topic, minute // span * span] += messages
    return dict(found)


@pytest.mark.parametrize("topics", [1, 5, 300])
def test_a_year_of_minutes_is_few_numbers_and_all_messages(topics: int) -> None:
    rng = random.Random(topics)
    exact: Counter[tuple[str, int]] = Counter()
    whole = MessageCounts(1000)
    for begin in range(0, YEAR, YEAR // 50):
        part = MessageCounts(100)
        for _ in range(400):
            topic = f"t{rng.randrange(topics)}"
            minute, messages = 29_000_000 + begin + rng.randrange(YEAR // 50), rng.randint(1, 9)
            part.add(topic, minute, messages)
            exact[topic, minute] += messages
        assert len(part.numbers) <= max(100, TIMES_MIN * topics)
        whole.merge(pickle.loads(pickle.dumps(part)))
    assert len(whole.numbers) <= max(1000, TIMES_MIN * topics)
    assert whole.numbers == by_span(exact, whole.span)
    assert sum(whole.totals().values()) == exact.total()
    # A span is no longer than it must be.
    assert len(by_span(exact, whole.span // 2)) > 1000


def test_few_numbers_are_exact_to_the_minute() -> None:
    counts = MessageCounts()
    for minute in range(1000):
        counts.add("orders", minute, 2)
    assert (counts.span, counts.totals()) == (1, {"orders": 2000})


def test_times_that_no_clock_shows_cost_no_more() -> None:
    counts = MessageCounts(10)
    for place in range(49):
        counts.add("orders", 1 << place, 1)
    assert len(counts.numbers) <= 10
    assert counts.totals() == {"orders": 49}
