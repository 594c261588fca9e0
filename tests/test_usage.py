"""Bad usage of all programs: exit code 2 and one line, for whatever their parsers take.

Commands, options and arguments are found in the parsers, so a new one is tested too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from broker.cli.command_line import dledger, run_command
from simulator.cli.main import main as run_simulator
from simulator.cli.main import simulator
from spark.cli import main as run_spark
from spark.cli import spark
from tests.support.command_leaves import Leaf, leaves_of

NOBODY = "127.0.0.1:1"
BAD = ("", "nonsense", "-1", "1e400", "9" * 5_000, "a b\nc", "\udcff", "../nowhere", "a..b:1")
LINE_MAX = 3_000


class Case(NamedTuple):
    """One command of one program."""

    program: str
    run: Callable[[Sequence[str]], int]
    leaf: Leaf


PROGRAMS: dict[str, tuple[Callable[[Sequence[str]], int], click.Command]] = {
    "dledger": (run_command, dledger),
    "simulator": (run_simulator, simulator),
    "spark": (run_spark, spark),
}
CASES = [
    Case(program, run, leaf)
    for program, (run, command) in PROGRAMS.items()
    for leaf in leaves_of(command)
]
BY_NAME = pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.program} {case.leaf.name}" for case in CASES]
)

WRITTEN = {
    "up data",
    "snapshot out",
    "backup create url",
    "restore directory",
    "member add data",
    "member remove data",
    "member replace data",
    "security init directory",
    "security user add out",
    "security user set out",
    "config init path",
    "bench directory",
    "run resume",
    "replay html",
    "shrink out",
    "scenario html",
    "package path",
    "audit out",
}
"""What a command writes may be missing."""


@pytest.fixture(autouse=True)
def nobody_is_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", NOBODY)
    (tmp_path / "stdin").touch()
    with (tmp_path / "stdin").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield


def check_bad_usage(
    case: Case, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = case.run(arguments)
    out, told = capsys.readouterr()
    what = f"{case.program} {' '.join(arguments)[:200]!r}: {told[:200]}"
    assert (code, out) == (2, ""), what
    assert told.count("\n") == 1, what
    assert told.endswith("\n"), what
    assert len(told) <= LINE_MAX, what


def is_refused(param: click.Parameter, value: str) -> bool:
    """Whether the type of the parameter has no such value."""
    try:
        param.type.convert(value, param, None)
    except click.UsageError:
        return True
    return False


@BY_NAME
def test_a_value_that_the_type_of_an_option_refuses_is_bad_usage(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    for param in case.leaf.values():
        for bad in BAD:
            if is_refused(param, bad):
                check_bad_usage(case, case.leaf.line(param, bad), capsys)


def takes_a_path(param: click.Parameter) -> bool:
    return any(word in (param.metavar or "") for word in ("FILE", "DIR", "OUT.zip"))


def test_what_is_written_is_a_parameter() -> None:
    known = {f"{case.leaf.name} {each.name}" for case in CASES for each in case.leaf.values()}
    assert known >= WRITTEN


@BY_NAME
def test_a_file_that_is_not_there_is_bad_usage(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    for param in filter(takes_a_path, case.leaf.values()):
        if f"{case.leaf.name} {param.name}" not in WRITTEN:
            check_bad_usage(case, case.leaf.line(param, "no/such"), capsys)


@BY_NAME
def test_a_shell_completes_files_where_a_command_takes_them(case: Case) -> None:
    context = click.Context(click.Command(case.leaf.name))
    for param in filter(takes_a_path, case.leaf.values()):
        found = param.shell_complete(context, "no/su")
        assert [each.type for each in found][-1:] in (["file"], ["dir"]), param.name


@pytest.mark.parametrize("name", ["production", "no/such.toml"])
def test_a_profile_that_is_not_there_is_bad_usage(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clusters = tmp_path / "clusters.toml"
    clusters.write_text('[prod]\nnamesrv = "127.0.0.1:1"\n[trial]\nnamesrv = "127.0.0.1:2"\n')
    monkeypatch.setenv("DLEDGER_CLUSTERS", str(clusters))
    for case in CASES:
        for param in case.leaf.values():
            if param.name == "profile" and case.program == "dledger":
                check_bad_usage(case, case.leaf.line(param, name), capsys)
                found = param.shell_complete(click.Context(click.Command("x")), "pr")
                assert [(each.value, each.type) for each in found] == [("prod", "plain")]
