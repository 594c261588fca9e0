"""The shipped node and store under the simulator: seeds that keep every promise, and the same
seed twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from simulator.bugs import bug_by_id, planted
from simulator.cli.main import main
from simulator.cli.options import RunOptions
from simulator.cli.passed_seeds import source_digest
from simulator.engine.trace import Trace
from simulator.faults.node_faults import NODE_KINDS
from simulator.runs.expected_coverage import missing_coverage
from simulator.runs.profiles import PROFILES
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import BROKERS, NODES, Run

SEEDS_OF_THREE = range(1, 131)
SEEDS_OF_FIVE = range(1000, 1020)
SECONDS = 6.0


def nodes_of(seed: int) -> int:
    return 5 if seed in SEEDS_OF_FIVE else 3


def as_run(seed: int) -> RunOptions:
    """What the command line calls such a run."""
    return RunOptions(nodes_of(seed), SECONDS / 60, PROFILES["nodes"])


def run(seed: int) -> Outcome:
    """One run of the suite; by its number it has three nodes or five."""
    return Run(seed, nodes=nodes_of(seed), seconds=SECONDS).play()


@pytest.fixture(scope="module")
def outcomes() -> Sequence[Outcome]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(run, [*SEEDS_OF_THREE, *SEEDS_OF_FIVE], chunksize=10))


@pytest.mark.minutes
@pytest.mark.processes
def test_every_promise_is_kept_in_a_few_hundred_runs(outcomes: Sequence[Outcome]) -> None:
    broken = [
        f"{outcome.violation}\nrepeat it with: {as_run(outcome.seed).repeat_command(outcome.seed)}"
        for outcome in outcomes
        if outcome.violation is not None
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.minutes
@pytest.mark.processes
def test_the_runs_get_into_every_situation_that_they_are_for(outcomes: Sequence[Outcome]) -> None:
    reached: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.marks)
    assert missing_coverage(reached) == []


@pytest.mark.minutes
@pytest.mark.processes
def test_the_runs_do_much_and_change_leaders_often(outcomes: Sequence[Outcome]) -> None:
    assert sum(outcome.acknowledged for outcome in outcomes) > 50 * len(outcomes)
    assert sum(outcome.unknown for outcome in outcomes) > len(outcomes)
    assert sum(outcome.last_term for outcome in outcomes) > 2 * len(outcomes)


@pytest.mark.minutes
@pytest.mark.processes
def test_the_seed_decides_which_faults_exist(outcomes: Sequence[Outcome]) -> None:
    plans = [set(outcome.plan.split(", ")) for outcome in outcomes]
    for kind in NODE_KINDS:
        with_it = sum(kind in plan for plan in plans)
        assert len(plans) / 4 < with_it < len(plans) * 3 / 4


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = Run(7, seconds=5.0).play(), Run(7, seconds=5.0).play()
    assert first == second
    assert Run(8, seconds=5.0).play().digest != first.digest


def test_a_random_draw_without_effect_changes_the_hash() -> None:
    trace = Trace(lambda: 0.0, None)
    trace.note("n0", "something")
    assert trace.digest(5) != trace.digest(6)
    assert trace.digest(5) == trace.digest(5)


def test_the_hash_covers_figures_and_bytes_but_no_words() -> None:
    def digest(who: str, what: str, fed: bytes = b"") -> str:
        trace = Trace(lambda: 0.5, None)
        trace.note(who, what)
        trace.feed(fed)
        return trace.digest(0)

    assert digest("n1", "is leader of term 3") == digest("n1", "leads in term 3")
    apart = {
        digest("n1", "is leader of term 3"),
        digest("n2", "is leader of term 3"),
        digest("n1", "is leader of term 4"),
        digest("n1", "is leader of term 3", b"a frame"),
    }
    assert len(apart) == 4


@pytest.mark.processes
@pytest.mark.parametrize(
    ("profile", "seed", "minutes"), [("nodes", 11, 0.05), ("default", 11, 0.05), ("groups", 2, 0.3)]
)
def test_the_hash_seed_of_python_changes_nothing(profile: str, seed: int, minutes: float) -> None:
    here = RunOptions(3, minutes, PROFILES[profile]).of(seed).play()
    for hash_seed in ("1", "4"):
        command = f"-m simulator replay {seed} --nodes 3 --minutes {minutes} --profile {profile}"
        there = subprocess.run(
            [sys.executable, *command.split()],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"digest {here.digest}" in there.stdout


def test_the_trace_of_a_replay_tells_one_event_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "3", "--trace", "--minutes", "0.02", "--profile", "nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("is leader of term 1" in line for line in lines)
    assert any("payload 1: acknowledged" in line for line in lines)
    assert lines[-1].startswith("seed 3 ")


@pytest.mark.processes
def test_several_jobs_give_what_one_gives(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--seeds", "5-16", "--minutes", "0.01", "--json", "--profile", "quick"]
    assert main(asked) == 0
    alone = capsys.readouterr().out
    assert main([*asked, "--jobs", "2"]) == 0
    assert capsys.readouterr().out == alone
    assert [json.loads(line)["seed"] for line in alone.splitlines()] == list(range(5, 17))


def test_a_violation_ends_a_run_with_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bug = bug_by_id("A3")
    assert bug is not None
    with planted(bug):
        assert main(["run", "--seeds", "4-90", "--minutes", "0.05", "--profile", "nodes"]) == 1
        told = capsys.readouterr()
        assert "its disk holds" in told.out
        repeat = "python -m simulator replay 4 --nodes 3 --minutes 0.05 --profile nodes --trace"
        assert f"repeat it with: {repeat}" in told.err
        assert main(repeat.split()[3:]) == 1
    assert "its disk holds" in capsys.readouterr().out.splitlines()[-1]


def test_a_thorough_profile_fails_where_its_seeds_missed_a_situation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["run", "--seeds", "1-2", "--minutes", "0.01", "--profile"]
    assert main([*arguments, "quick"]) == 0
    assert "never got into" not in capsys.readouterr().err
    assert main([*arguments, "nightly"]) == 1
    told = capsys.readouterr()
    assert "2 seeds, every promise kept" in told.err
    assert "never got into: " in told.err
    assert "leader stepped down while it refilled a follower" in told.err


def test_seeds_that_passed_on_the_same_code_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "build" / "passed.jsonl"
    asked = ["run", "--minutes", "0.01", "--profile", "nodes", "--json", "--resume", str(file)]

    def seeds_run(seeds: str) -> list[int]:
        assert main([*asked, "--seeds", seeds]) == 0
        return [json.loads(line)["seed"] for line in capsys.readouterr().out.splitlines()]

    assert seeds_run("1-3") == [1, 2, 3]
    assert seeds_run("2-5") == [4, 5]
    with file.open("a") as cut_off:
        cut_off.write('{"seed": 6, "simu')
    assert seeds_run("1-6") == [6]
    assert main([*asked, "--seeds", "1-6"]) == 0
    digest = source_digest()
    told = f"6 of 6 seeds passed on code {digest}, 6 of them in earlier runs"
    assert told in capsys.readouterr().err
    file.write_text(file.read_text().replace(digest, "0" * len(digest)))
    assert seeds_run("5-6") == [5, 6]
    assert main([*asked[:-1], str(tmp_path), "--seeds", "1-2"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_seed_that_failed_is_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bug = bug_by_id("A3")
    assert bug is not None
    asked = ["run", "--seeds", "3-4", "--minutes", "0.05", "--profile", "nodes"]
    asked += ["--resume", str(tmp_path / "passed.jsonl")]
    with planted(bug):
        for _ in range(2):
            assert main(asked) == 1
            assert "0 of 2 seeds passed" in capsys.readouterr().err
    assert main(asked) == 0
    assert "2 of 2 seeds passed" in capsys.readouterr().err


def test_a_run_that_keeps_going_tells_every_seed_that_broke_a_promise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bug = bug_by_id("A3")
    assert bug is not None
    asked = ["run", "--seeds", "3-5", "--minutes", "0.05", "--profile", "nodes", "--keep-going"]
    with planted(bug):
        assert main(asked) == 1
    told = capsys.readouterr()
    assert [line.split()[1] for line in told.out.splitlines()] == ["3", "4", "5"]
    assert "3 seeds, 3 broke a promise" in told.err
    assert main(asked) == 0


def test_bad_arguments_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["run", "--seeds", "9-3"], ["run", "--seeds", "x"], ["run", "--jobs", "0"]):
        assert main(arguments) == 2
    assert "ends before it begins" in capsys.readouterr().err


@pytest.mark.minutes
@pytest.mark.parametrize("world", [NODES, BROKERS])
def test_members_leave_and_return_and_leaders_hand_over(world: str) -> None:
    kinds = ("leader hands over", "member leaves", "member returns")
    missing = {"removal", "addition", "promotion", "handing over"}
    for seed in range(1, 13):
        outcome = Run(seed, world=world, nodes=3, seconds=6.0, kinds=kinds).play()
        assert outcome.violation is None, f"seed {seed}, {kinds}"
        missing -= set(outcome.marks)
    assert not missing
