"""The shipped node and store under the simulator: seeds that keep every promise, and the same
seed twice."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from simulator.__main__ import main
from simulator.cluster import Outcome, simulate

SEEDS_OF_THREE = range(1, 241)
SEEDS_OF_FIVE = range(1000, 1040)
SECONDS = 6.0


def run(seed: int) -> Outcome:
    """One run of the suite; by its number it has three nodes or five."""
    return simulate(seed, nodes=5 if seed in SEEDS_OF_FIVE else 3, seconds=SECONDS)


def test_every_promise_is_kept_in_a_few_hundred_runs() -> None:
    with ProcessPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, [*SEEDS_OF_THREE, *SEEDS_OF_FIVE], chunksize=10))
    broken = [
        f"{outcome.violation}\nrepeat it with: python -m simulator replay {outcome.seed} --trace "
        f"--minutes {SECONDS / 60:g} --nodes {5 if outcome.seed in SEEDS_OF_FIVE else 3}"
        for outcome in outcomes
        if outcome.violation is not None
    ]
    assert not broken, "\n".join(broken)
    # The runs did what they are for: much was acknowledged, and leaders did not live for ever.
    assert sum(outcome.acknowledged for outcome in outcomes) > 50 * len(outcomes)
    assert sum(outcome.last_term for outcome in outcomes) > 2 * len(outcomes)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = simulate(7, seconds=5.0), simulate(7, seconds=5.0)
    assert first == second
    assert simulate(8, seconds=5.0).digest != first.digest


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_the_hash_seed_of_python_changes_nothing(hash_seed: str) -> None:
    here = simulate(11, seconds=3.0)
    there = subprocess.run(
        [sys.executable, "-m", "simulator", "replay", "11", "--minutes", "0.05"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"hash {here.digest}" in there.stdout


def test_the_trace_of_a_replay_tells_one_event_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "3", "--trace", "--minutes", "0.02"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("is leader of term 1" in line for line in lines)
    assert any("payload 1: acknowledged" in line for line in lines)
    assert lines[-1].startswith("seed 3 ")


def test_bad_arguments_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["run", "--seeds", "9-3"], ["run", "--seeds", "x"], ["run", "--jobs", "0"]):
        with pytest.raises(SystemExit) as refused:
            main(arguments)
        assert refused.value.code == 2
    assert "ends before it begins" in capsys.readouterr().err
