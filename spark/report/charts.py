"""The charts of the report, in SVG: the map of agreement, and messages over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from spark.audit.audit import GroupAudit
from store.verify import RangeResult
from store.verify.plan.message_counts import MessageCounts

WIDTH = 1000
LABEL = 130
ROW = 30
# More columns could not be told apart.
COLUMNS = 250
# From best to worst: if ranges share a column, it shows the worst of them.
WORDS = ("same", "behind", "damaged", "differs")
BINS = 60
TOPICS = 6


def agreement_map(audit: GroupAudit) -> str:
    """The map of agreement: a row for each replica, from the first index to the last."""
    results = sorted(audit.results, key=lambda result: result.number)
    if not results:
        return "<p>No entry is committed yet.</p>"
    groups = share(results)
    names = [replica.name for replica in audit.plan.replicas]
    step = (WIDTH - LABEL) / len(groups)
    gap = min(1.0, step / 8)
    cells = []
    for place, name in enumerate(names):
        top = place * ROW
        cells.append(f'<text x="0" y="{top + 19}">{escape(name)}</text>')
        for column, group in enumerate(groups):
            word = max((result.agreement[place] for result in group), key=WORDS.index)
            first, last = group[0].first_index, group[-1].last_index
            cells.append(
                f'<rect class="{word}" x="{LABEL + column * step:.2f}" y="{top + 3}" '
                f'width="{step - gap:.2f}" height="{ROW - 6}"><title>{escape(name)}, entries '
                f"{first:,} to {last:,}: {word}</title></rect>"
            )
    bottom = len(names) * ROW + 16
    cells.append(f'<text class="axis" x="{LABEL}" y="{bottom}">{results[0].first_index:,}</text>')
    cells.append(
        f'<text class="axis end" x="{WIDTH}" y="{bottom}">entry {results[-1].last_index:,}</text>'
    )
    return (
        f'<svg role="img" aria-label="agreement of the replicas of {escape(audit.plan.group)}" '
        f'viewBox="0 0 {WIDTH} {bottom + 6}">{"".join(cells)}</svg>'
    )


def share(results: Sequence[RangeResult]) -> list[Sequence[RangeResult]]:
    """At most :data:`COLUMNS` groups of adjacent ranges."""
    count = min(COLUMNS, len(results))
    borders = [number * len(results) // count for number in range(count + 1)]
    return [results[borders[number] : borders[number + 1]] for number in range(count)]


def topic_totals(counts: MessageCounts) -> dict[str, int]:
    """Messages by topic, the largest number first."""
    return dict(sorted(counts.totals().items(), key=lambda item: (-item[1], item[0])))


def messages_over_time(counts: MessageCounts) -> str:
    """Stacked bars over store time. The largest topics have colors of their own."""
    if not counts.numbers:
        return "<p>No messages.</p>"
    topics = list(topic_totals(counts))[:TOPICS]
    minutes = [minute for _, minute in counts.numbers]
    first, last = min(minutes), max(minutes)
    # A bar has whole spans.
    span = -(-(last - first + 1) // (BINS * counts.span)) * counts.span
    count = (last - first) // span + 1
    bins = [[0] * (len(topics) + 1) for _ in range(count)]
    for (topic, minute), messages in counts.numbers.items():
        colour = topics.index(topic) if topic in topics else len(topics)
        bins[(minute - first) // span][colour] += messages
    return bars(bins, topics, first, span)


def bars(bins: list[list[int]], topics: list[str], first: int, span: int) -> str:
    height = 180
    most = max(map(sum, bins))
    step = (WIDTH - LABEL) / len(bins)
    cells = [
        f'<text class="axis" x="0" y="12">{most:,} in {span} min</text>',
        f'<line x1="{LABEL}" x2="{WIDTH}" y1="{height}" y2="{height}"/>',
    ]
    for number, counts in enumerate(bins):
        base = float(height)
        for colour, messages in enumerate(counts):
            if messages:
                size = messages / most * (height - 8)
                base -= size
                topic = topics[colour] if colour < len(topics) else "others"
                cells.append(
                    f'<rect class="t{colour}" x="{LABEL + number * step:.2f}" y="{base:.2f}" '
                    f'width="{max(1.0, min(step - 1, 60)):.2f}" height="{size:.2f}"><title>'
                    f"{escape(topic)}, {clock(first + number * span)}: {messages:,}</title></rect>"
                )
    cells.append(f'<text class="axis" x="{LABEL}" y="{height + 16}">{clock(first)}</text>')
    if len(bins) > 1:
        end = clock(first + (len(bins) - 1) * span)
        cells.append(f'<text class="axis end" x="{WIDTH}" y="{height + 16}">{end}</text>')
    names = [*topics, "others"] if any(counts[len(topics)] for counts in bins) else topics
    legend = "".join(
        f'<span><i class="t{colour}"></i>{escape(topic)}</span>'
        for colour, topic in enumerate(names)
    )
    return (
        f'<svg role="img" aria-label="messages over time" viewBox="0 0 {WIDTH} {height + 22}">'
        f'{"".join(cells)}</svg><p class="legend">{legend}</p>'
    )


def clock(minute: int) -> str:
    """A time in minutes since 1970, as text in UTC."""
    try:
        return f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return f"minute {minute}"
