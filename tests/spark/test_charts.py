"""The chart of messages over time has all messages, however coarse their times are."""

from __future__ import annotations

import re

import pytest

from spark.report.charts import BINS, messages_over_time, topic_totals
from store.verify.plan.message_counts import MessageCounts


@pytest.mark.parametrize("most", [1 << 16, 200, 40])
def test_each_message_is_in_a_bar(most: int) -> None:
    counts = MessageCounts(most)
    for minute in range(3000):
        counts.add("orders", 29_000_003 + minute, 3)
        counts.add(f"t{minute % 9}", 29_000_003 + minute, 1)
    assert (counts.span > 1) == (most < 6000)
    assert next(iter(topic_totals(counts).items())) == ("orders", 9000)
    chart = messages_over_time(counts)
    bars = re.findall(r"<title>(\w+), [^<]*: ([\d,]+)</title>", chart)
    assert sum(int(messages.replace(",", "")) for _, messages in bars) == 12_000
    orders = [messages for topic, messages in bars if topic == "orders"]
    assert 1 < len(orders) <= BINS
    assert "others" in dict(bars)
    assert messages_over_time(MessageCounts()) == "<p>No messages.</p>"
