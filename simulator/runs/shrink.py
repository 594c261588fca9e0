"""Shrinks a run that breaks a promise, step by step toward no fault at all.

It tries these steps in order and keeps each one that still breaks the same promise:

1. remove the time after the violation, and the actions in it;
2. remove actions: halves first, then smaller parts, down to single ones (delta debugging, Zeller
   and Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing Input");
3. remove single actions once more, each under a few other seeds: an action may only be needed
   because of what chance did meanwhile;
4. stop faults and clients earlier, and round the times.

"The same" means that the violation begins with the same words, apart from numbers and names of
hosts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from simulator.faults.schedule import Action
from simulator.runs.scenario import Scenario
from simulator.worlds.outcome import Outcome

SAME_WORDS = 7
OTHER_SEEDS = 4
MARGIN_SECONDS = 0.001
HALVINGS = 6


def kind_of(violation: str) -> str:
    """The first words of a violation, without words that differ from run to run."""
    plain = re.sub(r"\[[^]]*\]|n?\d[\d.]*", "#", violation)
    return " ".join(plain.split()[:SAME_WORDS])


class NotBrokenError(ValueError):
    """The run to be shrunk keeps every promise."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest scenario found, its outcome, and the number of runs."""

    scenario: Scenario
    outcome: Outcome
    runs: int


class Shrinker:
    """Tries smaller scenarios, ``runs_max`` of them at most; ``tried`` is called after each."""

    def __init__(
        self, scenario: Scenario, *, runs_max: int, tried: Callable[[int, Scenario], None]
    ) -> None:
        """Raises :class:`NotBrokenError`."""
        self._runs_max = runs_max
        self._tell = tried
        self.runs = 1
        outcome = scenario.run()
        if outcome.violation is None:
            raise NotBrokenError("the run keeps every promise: there is nothing to shrink")
        self._kind = kind_of(outcome.violation)
        self.best = scenario
        self.outcome = outcome

    def shrink(self) -> Shrunk:
        """Does all steps, and repeats them as long as they help."""
        self._cut_time()
        before = -1
        while before != len(self.best.actions) and not self._spent:
            before = len(self.best.actions)
            self._take_away_parts()
            self._take_away_under_other_seeds()
        self._heal_earlier()
        self._stop_clients_earlier()
        self._round_times()
        assert self.outcome.violation is not None  # noqa: S101 - only such are kept
        remarks = (f"seed {self.best.seed}: {self.outcome.violation}",)
        known = self.best.bug.says.split(" | ") if self.best.bug is not None else []
        known = [said for said in known if said in self.outcome.violation]
        said = known[0] if known else _common_words(self.outcome.violation)
        scenario = replace(self.best, violates=said, remarks=remarks)
        return Shrunk(scenario, self.outcome, self.runs)

    @property
    def _spent(self) -> bool:
        return self.runs >= self._runs_max

    def _try(self, scenario: Scenario) -> bool:
        """Runs a candidate; keeps it if it breaks the same promise."""
        if self._spent:
            return False
        self.runs += 1
        outcome = scenario.run()
        broken = outcome.violation is not None and kind_of(outcome.violation) == self._kind
        if broken:
            self.best, self.outcome = scenario, outcome
        self._tell(self.runs, self.best)
        return broken

    def _try_actions(self, actions: Sequence[Action], seed: int | None = None) -> bool:
        seed = self.best.seed if seed is None else seed
        return self._try(replace(self.best, actions=tuple(actions), seed=seed))

    def _cut_time(self) -> None:
        at = self.outcome.simulated_seconds
        if at < self.best.seconds:
            self._try(
                replace(
                    self.best,
                    seconds=round(at + MARGIN_SECONDS, 3),
                    actions=tuple(action for action in self.best.actions if action.at <= at),
                )
            )
        else:
            self._try_actions([a for a in self.best.actions if a.at <= self.best.seconds])

    def _take_away_parts(self) -> None:
        size = max(len(self.best.actions) // 2, 1)
        while self.best.actions and not self._spent:
            place, helped = 0, False
            while place < len(self.best.actions):
                actions = self.best.actions
                if self._try_actions([*actions[:place], *actions[place + size :]]):
                    helped = True
                    self._cut_time()
                else:
                    place += size
            if size == 1 and not helped:
                return
            if not helped or size > len(self.best.actions):
                size = max(min(size, len(self.best.actions)) // 2, 1)

    def _take_away_under_other_seeds(self) -> None:
        place = 0
        while place < len(self.best.actions) and not self._spent:
            actions = self.best.actions
            fewer = [*actions[:place], *actions[place + 1 :]]
            first = self.best.seed
            if not any(
                self._try_actions(fewer, seed) for seed in range(first + 1, first + 1 + OTHER_SEEDS)
            ):
                place += 1

    def _heal_earlier(self) -> None:
        """Shortens the time of faults, if the violation comes after the healing."""
        last = max((action.at for action in self.best.actions), default=0.0)
        self._halve(last, self.best.seconds, lambda until: replace(self.best, seconds=until))

    def _stop_clients_earlier(self) -> None:
        until = self.best.client_seconds or self.best.seconds
        self._halve(0.0, until, lambda until: replace(self.best, client_seconds=until))

    def _halve(self, low: float, high: float, at: Callable[[float], Scenario]) -> None:
        for _ in range(HALVINGS):
            middle = round((low + high) / 2, 3)
            if self._try(at(middle)):
                high = middle
            else:
                low = middle

    def _round_times(self) -> None:
        for digits in (1, 2, 3):
            for place, action in enumerate(self.best.actions):
                rounded = replace(action, at=round(action.at, digits))
                if rounded.at == action.at:
                    continue
                changed = list(self.best.actions)
                changed[place] = rounded
                if changed == sorted(changed, key=lambda each: each.at):
                    self._try_actions(changed)


def _common_words(violation: str) -> str:
    """The longest part of a violation without numbers and names, for ``violates``."""
    pieces = [piece.strip(" ,:;") for piece in re.split(r"\S*\d\S*", violation)]
    return max(pieces, key=len)
