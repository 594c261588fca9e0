"""How long a retrying client waits when brokers die."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PAUSE_SECONDS = 1.0
"""Undisturbed sending before brokers are killed, so that each round begins alike."""


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """Milliseconds to the next acknowledgement: from the kill of the leader; from the moment when
    it fell silent without closing its connections; and from the restart of a group whose nodes were
    all killed. Every value, in order.
    """

    leader_killed_ms: Sequence[float]
    leader_silent_ms: Sequence[float]
    all_killed_ms: Sequence[float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "leader_killed_median_ms": statistics.median(self.leader_killed_ms),
            "leader_silent_median_ms": statistics.median(self.leader_silent_ms),
            "all_killed_median_ms": statistics.median(self.all_killed_ms),
        }


Disturb = Callable[[], float]
"""Kills (and starts) brokers; the moment (``time.perf_counter``) from which the wait is counted."""


def waits_ms(
    disturb: Disturb, repair: Callable[[], None], first_after: Callable[[float], float], rounds: int
) -> list[float]:
    """The wait of each round; ``repair`` brings the cluster back to strength after it."""
    waits: list[float] = []
    for _ in range(rounds):
        moment = disturb()
        waits.append(1000 * (first_after(moment) - moment))
        repair()
    return waits
