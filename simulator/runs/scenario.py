"""Scenarios: a run in a few lines, with its faults and the expected outcome.

::

    # n2 leads though it lacks what was committed
    seed 17                 where all chance but the faults comes from
    world nodes             or brokers, see worlds/registry.py
    nodes 3
    seconds 2.5             how long until everything is healed
    client-seconds 1.2      how long the clients are at work; all the time without this line
    bug A5                  with a planted bug (none without this line)
    violates lacks the committed entry
    at 0.8 crash n0
    at 0.9 start n0

Without ``violates`` every promise must be kept; a scenario of a fixed bug has none. With it, a
check must say just that. Lines may be empty, and what follows a ``#`` is a remark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.bugs import Bug, bug_by_id, planted
from simulator.faults.schedule import Action, ScheduleError, parse_action
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import NODES, WORLDS, Run

GROUP_SIZES = (3, 5)


class ScenarioError(ValueError):
    """A file is no scenario. The text names the line."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """See the module. ``remarks`` are the first lines of the file."""

    seed: int
    nodes: int
    seconds: float
    actions: tuple[Action, ...]
    world: str = NODES
    client_seconds: float | None = None
    bug: Bug | None = None
    violates: str = ""
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"# {remark}" for remark in self.remarks]
        lines += [
            f"seed {self.seed}",
            f"world {self.world}",
            f"nodes {self.nodes}",
            f"seconds {self.seconds!r}",
        ]
        if self.client_seconds is not None:
            lines.append(f"client-seconds {self.client_seconds!r}")
        if self.bug is not None:
            lines.append(f"bug {self.bug.id}")
        if self.violates:
            lines.append(f"violates {self.violates}")
        return "\n".join([*lines, *map(str, self.actions)]) + "\n"

    def run(self, show: Callable[[str], None] | None = None) -> Outcome:
        """Runs the scenario."""
        run = Run(
            self.seed,
            world=self.world,
            nodes=self.nodes,
            seconds=self.seconds,
            schedule=self.actions,
            client_seconds=self.client_seconds,
        )
        with planted(self.bug):
            return run.play(show)

    def verdict(self, outcome: Outcome) -> str | None:
        """How the outcome differs from the expected one; ``None`` if it does not."""
        if not self.violates:
            return outcome.violation
        if outcome.violation is None:
            return f"every promise was kept, though {self.violates!r} was expected"
        if self.violates not in outcome.violation:
            return f"{self.violates!r} was expected, not: {outcome.violation}"
        return None


def parse_scenario(text: str) -> Scenario:
    """Reads a file. Raises :class:`ScenarioError`."""
    remarks: list[str] = []
    actions: list[Action] = []
    given: dict[str, str] = {}
    for number, whole in enumerate(text.splitlines(), 1):
        line, _, remark = whole.partition("#")
        line = line.strip()
        try:
            if line.startswith("at "):
                actions.append(parse_action(line))
            elif line:
                word, _, rest = line.partition(" ")
                _take(given, word, rest.strip())
            elif remark and not given:
                remarks.append(remark.strip())
        except ScheduleError as error:
            raise ScenarioError(f"line {number}: {error}") from error
    try:
        return _scenario(given, tuple(actions), tuple(remarks))
    except ValueError as error:
        raise ScenarioError(str(error)) from error


_WORDS = ("seed", "world", "nodes", "seconds", "client-seconds", "bug", "violates")


def _take(given: dict[str, str], word: str, rest: str) -> None:
    if word not in _WORDS:
        raise ScheduleError(f"{word!r} is none of {', '.join((*_WORDS, 'at'))}")
    if word in given:
        raise ScheduleError(f"{word} is given twice")
    if not rest:
        raise ScheduleError(f"{word} says nothing")
    given[word] = rest


def _scenario(
    given: dict[str, str], actions: tuple[Action, ...], remarks: tuple[str, ...]
) -> Scenario:
    if "seed" not in given or "seconds" not in given:
        raise ValueError("a scenario needs at least the lines 'seed N' and 'seconds S'")
    nodes = int(given.get("nodes", "3"))
    if nodes not in GROUP_SIZES:
        raise ValueError(f"a cluster has 3 or 5 nodes, not {nodes}")
    world = given.get("world", NODES)
    if world not in WORLDS:
        raise ValueError(f"a world is one of {', '.join(WORLDS)}, not {world!r}")
    bug = None
    if "bug" in given:
        bug = bug_by_id(given["bug"])
        if bug is None:
            raise ValueError(f"there is no bug {given['bug']!r}")
    hosts = {f"n{place}" for place in range(nodes)}
    for action in actions:
        for name in action.hosts:
            if name not in hosts:
                raise ValueError(f"{action}: there is no host {name!r}")
    client = given.get("client-seconds")
    return Scenario(
        seed=int(given["seed"]),
        nodes=nodes,
        seconds=float(given["seconds"]),
        actions=actions,
        world=world,
        client_seconds=None if client is None else float(client),
        bug=bug,
        violates=given.get("violates", ""),
        remarks=remarks,
    )
