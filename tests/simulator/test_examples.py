"""The examples of ``docs/simulator.md`` run, as somebody would copy them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simulator
from simulator.runs.profiles import PROFILES
from simulator.worlds.registry import NODES, WORLDS, for_long_runs

PAGE = Path(simulator.__file__).parents[1] / "docs" / "simulator.md"
EXAMPLES = dict(
    re.findall(r"### (A [\w ]+)\n(?:(?!###).)*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
)


def test_each_part_that_can_be_added_has_an_example() -> None:
    assert list(EXAMPLES) == ["A fault", "A check", "A workload", "A planted bug"]


def test_the_page_names_each_world_and_each_profile() -> None:
    def named(heading: str) -> set[str]:
        (section,) = re.findall(
            rf"^## {heading}\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE
        )
        first_cells = re.findall(r"^\| (`[^|]*)\|", section, re.MULTILINE)
        return {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}

    for_short_runs = {name for name in WORLDS if for_long_runs(name) in WORLDS}
    assert named("Worlds") == {NODES, *for_short_runs}
    assert named("Profiles") == PROFILES.keys() - WORLDS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str) -> None:
    exec(compile(EXAMPLES[name], name, "exec"), {"__name__": "example"})  # noqa: S102 - our own page
