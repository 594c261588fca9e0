"""Arguments that several commands take, and their parsers."""

from __future__ import annotations

from dataclasses import dataclass

import click

from broker.cli.terminal.numbers import positive
from broker.cli.terminal.options import options
from simulator.bugs import BUGS, Bug, bug_by_id
from simulator.runs.profiles import PROFILES, Profile
from simulator.worlds.registry import Run
from store.text_numbers import whole_number


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
        """The number of nodes in a group of that seed."""
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
        """The command that runs a seed again and shows every event."""
        named = "" if self.profile.name == "default" else f" --profile {self.profile.name}"
        return (
            f"python -m simulator replay {seed} --nodes {self.nodes_of(seed)} "
            f"--minutes {self.minutes!r}{named} --trace"
        )


def seeds(text: str) -> tuple[int, int]:
    """``A-B``, or one seed."""
    first, _, last = text.partition("-")
    try:
        pair = whole_number(first), whole_number(last or first)
    except ValueError:
        raise ValueError(f"{text!r} is not A-B, as in 1-100") from None
    if pair[0] > pair[1]:
        raise ValueError(f"{text!r} ends before it begins")
    return pair


def minutes(text: str) -> float:
    """Minutes above 0."""
    return positive(text, "minutes")


def bug(text: str) -> Bug:
    """A planted bug, by its id."""
    found = bug_by_id(text)
    if found is None:
        known = ", ".join(bug.id for bug in BUGS)
        raise ValueError(f"there is no bug {text!r}, only {known}")
    return found


bug_option = click.option("--bug", type=bug, metavar="ID", help="With a planted bug, as it is run.")


def _keep(context: click.Context, option: click.Parameter, value: float | None) -> None:
    context.meta[f"simulator.{option.name}"] = value


def _options(context: click.Context, _option: click.Parameter, profile: str) -> RunOptions:
    nodes, length = (context.meta[f"simulator.{name}"] for name in ("nodes", "minutes"))
    found = PROFILES[profile]
    return RunOptions(nodes, length or found.minutes, found)


run_options = options(
    click.option(
        "--nodes",
        type=click.Choice((3, 5)),
        is_eager=True,
        expose_value=False,
        callback=_keep,
        help="Of the group (default: what the profile says).",
    ),
    click.option(
        "--minutes",
        type=minutes,
        metavar="M",
        is_eager=True,
        expose_value=False,
        callback=_keep,
        help="Simulated time with faults, in minutes.",
    ),
    click.option(
        "--profile",
        "options",
        type=click.Choice(tuple(PROFILES)),
        metavar="NAME",
        default="default",
        callback=_options,
        help="Which worlds and faults, and how long: one of docs/simulator.md, or a world "
        "(default: default).",
    ),
)
"""The parameter ``options``."""
