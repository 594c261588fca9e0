"""Arguments that several commands take, and how they are read."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from simulator.bugs import BUGS, Bug, bug_by_id
from simulator.runs.profiles import PROFILES, Profile
from simulator.worlds.registry import Run


class Refusal(Exception):  # noqa: N818 - told to the user in one line, not a failure
    """The request cannot be carried out; ``code`` is the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A run without its seed. ``nodes`` is None if the profile says how many."""

    nodes: int | None
    minutes: float
    profile: Profile

    @property
    def seconds(self) -> float:
        """Simulated time with faults."""
        return 60 * self.minutes

    def nodes_of(self, seed: int) -> int:
        """How many a group of that seed has."""
        return self.nodes or self.profile.nodes_of(seed)

    def of(self, seed: int) -> Run:
        """The run of a seed."""
        return Run(
            seed,
            world=self.profile.world(seed),
            nodes=self.nodes_of(seed),
            seconds=self.seconds,
            kinds=self.profile.kinds_of(seed),
        )

    def repeat_command(self, seed: int) -> str:
        """The one command that runs a seed again and shows every event."""
        named = "" if self.profile.name == "default" else f" --profile {self.profile.name}"
        return (
            f"python -m simulator replay {seed} --nodes {self.nodes_of(seed)} "
            f"--minutes {self.minutes!r}{named} --trace"
        )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """``--nodes``, ``--minutes`` and ``--profile``."""
    parser.add_argument(
        "--nodes", type=int, choices=(3, 5), help="of the group; what the profile says by default"
    )
    parser.add_argument(
        "--minutes", type=minutes, metavar="M", help="simulated time with faults, in minutes"
    )
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), default="default", help="which faults, and how long"
    )


def run_options(asked: argparse.Namespace) -> RunOptions:
    """The options of :func:`add_run_options`."""
    profile = PROFILES[asked.profile]
    return RunOptions(asked.nodes, asked.minutes or profile.minutes, profile)


def seeds(text: str) -> tuple[int, int]:
    """``A-B``, or one seed."""
    first, _, last = text.partition("-")
    try:
        pair = int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A-B, as in 1-100") from None
    if pair[0] > pair[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return pair


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def minutes(text: str) -> float:
    """Minutes above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return value


def bug(text: str) -> Bug:
    """A planted bug, by its id."""
    found = bug_by_id(text)
    if found is None:
        known = ", ".join(bug.id for bug in BUGS)
        raise argparse.ArgumentTypeError(f"there is no bug {text!r}, only {known}")
    return found
