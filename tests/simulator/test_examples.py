"""The examples of ``docs/simulator.md`` run, as somebody would copy them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simulator

PAGE = Path(simulator.__file__).parents[1] / "docs" / "simulator.md"
EXAMPLES = dict(re.findall(r"### (A [\w ]+)\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL))


def test_each_part_that_can_be_added_has_an_example() -> None:
    assert list(EXAMPLES) == ["A fault", "A check", "A workload", "A planted bug"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str) -> None:
    exec(compile(EXAMPLES[name], name, "exec"), {"__name__": "example"})  # noqa: S102 - our own page
