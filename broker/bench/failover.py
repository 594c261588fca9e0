"""The waiting time of a retrying client when brokers die."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PAUSE_SECONDS = 1.0
"""Seconds of undisturbed sending before a fault, so that each round begins alike."""


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """Milliseconds to the next acknowledgement, all values in order: from the kill of the leader;
    from the moment when it stopped answering without closing its connections; from the command
    that restarts a group whose nodes were all killed; and from the start of the first of these
    nodes' processes, to a hundredth of a second. Under load, another client sends at the same time.
    """

    leader_killed_ms: Sequence[float]
    leader_silent_ms: Sequence[float]
    all_killed_ms: Sequence[float]
    all_started_ms: Sequence[float]
    load: float
    """The messages a second of the load."""
    leader_killed_under_load_ms: Sequence[float]
    leader_silent_under_load_ms: Sequence[float]

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        waits = {name: fields[name] for name in fields if name.endswith("_ms")}
        return fields | {
            f"{name.removesuffix('_ms')}_median_ms": statistics.median(each)
            for name, each in waits.items()
        }


Disturb = Callable[[], float]
"""Kills (and starts) brokers; returns the time (``time.perf_counter``) from which the wait
counts."""


def waits_ms(
    disturb: Disturb, repair: Callable[[], None], first_after: Callable[[float], float], rounds: int
) -> list[float]:
    """The wait of each round; ``repair`` restarts the brokers after it."""
    waits: list[float] = []
    for _ in range(rounds):
        moment = disturb()
        waits.append(1000 * (first_after(moment) - moment))
        repair()
    return waits
