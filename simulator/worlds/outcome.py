"""The outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.faults.schedule import Action


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run. ``violation`` is None if every promise was kept."""

    seed: int
    plan: str
    violation: str | None
    digest: str
    events: int
    draws: int
    simulated_seconds: float
    acknowledged: int
    unknown: int
    last_term: int
    marks: dict[str, int] = field(default_factory=dict)
    schedule: tuple[Action, ...] = ()
    picture: str = ""
    """A picture of the violation as a web page, if a check has drawn one."""
