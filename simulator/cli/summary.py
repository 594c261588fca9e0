"""The outcome of a run, or of many, in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from simulator.worlds.outcome import Outcome


def one_line(outcome: Outcome) -> str:
    """A run in a line."""
    verdict = outcome.violation or "every promise kept"
    return (
        f"seed {outcome.seed} ({outcome.plan}): {verdict}; {outcome.acknowledged} acknowledged, "
        f"{outcome.unknown} unknown, last term {outcome.last_term}, {outcome.events} events, "
        f"{outcome.draws} draws, digest {outcome.digest}"
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """A run as a JSON object, with its actions only if a promise was broken."""
    told = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
    del told["picture"]  # a page does not fit into a line
    told["schedule"] = [str(action) for action in outcome.schedule] if outcome.violation else []
    return told


def many(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Many runs in a line; ``seconds`` is their time."""
    simulated = sum(outcome.simulated_seconds for outcome in outcomes)
    events = sum(outcome.events for outcome in outcomes)
    broken = sum(outcome.violation is not None for outcome in outcomes)
    marks = Counter(mark for outcome in outcomes for mark in outcome.marks)
    verdict = f"{broken} broke a promise" if broken else "every promise kept"
    return (
        f"{len(outcomes)} seeds, {verdict}; {simulated:.0f} simulated seconds "
        f"in {seconds:.1f} s ({simulated / seconds:.0f} times as fast), "
        f"{events / seconds:.0f} events/s, {len(marks)} coverage marks reached"
    )
