"""The stories in ``scenarios/``: each is named after the rule, or the known bug, that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dledger.raft.scenario import SCENARIOS, Scenario, ScenarioError, play

PATHS = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_a_scenario_prints_what_its_file_says(path: Path) -> None:
    told = path.read_text()
    assert play(told) == told, "python -m tests.dledger.raft.scenario writes the files anew"


def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="unknown command: elect n0"):
        Scenario().run("elect n0")


def test_a_link_of_unknown_nodes_is_an_error() -> None:
    scenario = Scenario()
    scenario.run("nodes n0 n1")
    with pytest.raises(ScenarioError, match="no link: n0->n7"):
        scenario.run("deliver n0->n7")


def test_the_same_scenario_told_twice_is_the_same() -> None:
    told = "> nodes n0 n1 n2\n> run 5000\n> propose n0 x\n> run 300\n> show\n"
    assert play(told) == play(told)
