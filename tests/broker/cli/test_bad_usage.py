"""Every command with arguments that make no sense: one line that can be read, and no traceback.

The commands, options and arguments are found in the parsers, so a new one is tested too.
Nothing is started and nobody is reached: the NameServer is at a port where nobody listens.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast
from unittest.mock import Mock

import pytest

from broker.cli.command_line import COMMANDS, Command, run_command
from broker.cli.commands import node
from broker.cli.local_cluster import managed_processes
from broker.cli.terminal import foreground
from broker.cli.terminal.command_error import CommandError
from tests.support.odd_files import make_odd_file

NOBODY = "127.0.0.1:1"
HUGE = "x" * 20_000
SECONDS = 0.01
TOLD_MAX = 3_000
"""Characters: the usage of a command, and one line."""

BAD = {
    "empty": "",
    "huge": HUGE,
    "digits": "9" * 5_000,
    "negative": "-1",
    "option": "--",
    "spaces": "  ",
    "lines": "a\nb\nc",
    "escape": "\x1b[31m",
    "slashes": "../" * 30 + "nowhere",
    "no text": "\udcff\udcfe",
    "separators": ";;,;||||",
    "number": "1e400",
    "url": "http://127.0.0.1:9876/x",
    "label": "a" * 70 + ":1",
    "no label": "a..b:1",
}
"""A zero byte is none of them: no argument can hold one."""

PLAUSIBLE = {
    "broker": "127.0.0.1:1",
    "address": "127.0.0.1:1",
    "id": "0" * 32,
    "node": "n1",
    "nodes": "n1",
    "config": "node.toml",
    "to": "latest",
}
"""What an argument of that name may be; of others, any word."""


class Leaf(NamedTuple):
    """One command, and what it takes: its words, options with a value, and arguments."""

    words: tuple[str, ...]
    actions: tuple[argparse.Action, ...]
    groups: tuple[tuple[argparse.Action, ...], ...]
    """Of which exactly one must be given."""

    @property
    def name(self) -> str:
        return " ".join(self.words)

    def values(self) -> list[argparse.Action]:
        """All that take a value."""
        return [action for action in self.actions if action.nargs != 0]

    def line(self, given: argparse.Action | None = None, value: str = "") -> list[str]:
        """As short as it can be, with ``value`` for one of its arguments."""
        one_of = [group for group in self.groups if given not in group]
        needed = [action for action in self.actions if action.required and action is not given]
        needed += [group[0] for group in one_of]
        words = [*self.words]
        # Without a limit some would wait for a cluster to come.
        words += [f"--timeout={SECONDS}" for each in self.actions if each.dest == "timeout"]
        for action in needed:
            words += _written(action, PLAUSIBLE.get(action.dest, _choice(action)))
        return words if given is None else [*words, *_written(given, value)]


def _choice(action: argparse.Action) -> str:
    return str(next(iter(action.choices))) if action.choices else "word"


def _written(action: argparse.Action, value: str) -> list[str]:
    return [f"{action.option_strings[-1]}={value}"] if action.option_strings else [value]


def leaves() -> Iterator[Leaf]:
    for name in COMMANDS:
        module = cast(Command, importlib.import_module(f"broker.cli.commands.{name}"))
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        yield from _leaves_of((name,), parser)


def _leaves_of(words: tuple[str, ...], parser: argparse.ArgumentParser) -> Iterator[Leaf]:
    actions = [action for action in parser._actions if action.dest != "help"]
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _leaves_of((*words, name), child)
            return
    groups = tuple(
        tuple(group._group_actions) for group in parser._mutually_exclusive_groups if group.required
    )
    yield Leaf(words, tuple(actions), groups)


LEAVES = list(leaves())
BY_NAME = pytest.mark.parametrize("leaf", LEAVES, ids=[leaf.name for leaf in LEAVES])


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise CommandError("it would be started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", NOBODY)
    monkeypatch.setattr(managed_processes.ManagedProcess, "start", refuse)
    for module in (foreground, node, importlib.import_module("broker.cli.commands.namesrv")):
        monkeypatch.setattr(module, "run_until_stopped", refuse)
        monkeypatch.setattr(module, "show_as", lambda _name: None)
        monkeypatch.setattr(module, "ServerLog", Mock(), raising=False)
    monkeypatch.setattr("broker.cli.commands.bench._measure_own", refuse)
    monkeypatch.setattr("broker.cli.commands.node.import_server", lambda: None)
    monkeypatch.setattr("broker.cli.commands.node.tune_interpreter", lambda: None)
    monkeypatch.setattr("broker.cli.commands.up.interrupt_on_ending", lambda: None)
    monkeypatch.setattr("broker.cli.commands.bench.interrupt_on_ending", lambda: None)


Run = Callable[[Sequence[str]], tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    (tmp_path / "stdin").write_text("one\ntwo\n")

    def run(arguments: Sequence[str]) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        with (tmp_path / "stdin").open() as stdin, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            try:
                code = run_command(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def check_told(arguments: Sequence[str], code: int, told: str) -> None:
    what = " ".join(arguments)[:200]
    assert code in (0, 1, 2), what
    assert "Traceback" not in told, what
    assert len(told) <= TOLD_MAX, what
    assert "\x1b" not in told, what
    if code == 0:
        return
    *before, last = told.rstrip("\n").split("\n")
    assert last.startswith("dledger"), f"{what}: {told}"
    assert code == 2 or not before, f"{what}: {told}"
    assert not before or before[0].startswith("usage: "), f"{what}: {told}"


@BY_NAME
def test_no_value_makes_a_command_fail_but_in_one_line(leaf: Leaf, run: Run) -> None:
    for action in leaf.values():
        for bad in BAD.values():
            arguments = leaf.line(action, bad)
            code, _, told = run(arguments)
            check_told(arguments, code, told)


@BY_NAME
def test_a_command_without_a_nameserver_or_a_cluster_says_so(leaf: Leaf, run: Run) -> None:
    code, out, told = run(leaf.line())
    check_told(leaf.line(), code, told)
    assert code != 0 or out


@BY_NAME
def test_what_is_needed_and_not_given_and_what_is_not_known_is_bad_usage(
    leaf: Leaf, run: Run
) -> None:
    for arguments in (
        [*leaf.line(), "--nonsense"],
        [*leaf.line(), "--nonsense", HUGE],
        [*leaf.words, f"--{HUGE}"],
        *([[*leaf.words]] if any(action.required for action in leaf.actions) else []),
    ):
        code, out, told = run(arguments)
        check_told(arguments, code, told)
        assert (code, out) == (2, "")


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop", "huge", "bytes", "nested", "empty"])
@BY_NAME
def test_odd_files_in_a_cluster_directory_are_told(
    leaf: Leaf, kind: str, run: Run, tmp_path: Path
) -> None:
    """In the place of settings, of a pid, and of what is given as a path."""
    home = tmp_path / "data/broker-a/n1"
    home.mkdir(parents=True)
    for name in ("data/broker-a/n1/node.toml", "data/broker-a/n1/pid", "node.toml", "given"):
        make_odd_file(tmp_path / name, kind)
    paths = [action for action in leaf.values() if action.type is Path or action.dest == "config"]
    for arguments in (leaf.line(), *(leaf.line(action, "given") for action in paths)):
        code, _, told = run(arguments)
        check_told(arguments, code, told)


def test_a_host_that_is_none_is_bad_usage(run: Run) -> None:
    for host in ("", "a..b", "a" * 64, "a b", "\u00fc"):
        for arguments in (
            ["namesrv", f"--host={host}"],
            ["topic", "create", "x", f"-b={host}:1"],
            ["status", f"--namesrv={host}:1"],
        ):
            code, out, told = run(arguments)
            check_told(arguments, code, told)
            assert (code, out) == (2, ""), arguments


@pytest.mark.parametrize(
    "arguments", [[""], [HUGE], ["\udcff"], ["--"], ["--x"], ["-h", "\udcff"], ["status", "\udcff"]]
)
def test_what_is_no_command_is_bad_usage(arguments: list[str], run: Run) -> None:
    code, out, told = run(arguments)
    check_told(arguments, code, told)
    assert (code, out) == (2, "")


CLOSED = """
import ast, os, sys
from broker.cli.main import main
for number, line in enumerate(ast.literal_eval(sys.stdin.read())):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(f"{number}.told", os.O_WRONLY | os.O_CREAT), 2)
        os.close(0); os.close(1)
        sys.stdin = sys.stdout = None
        try:
            code = main(line)
        except SystemExit as end:
            code = end.code
        except BaseException:  # a fork must not go on with pytest, whatever it was
            sys.excepthook(*sys.exc_info())
            code = 99
        sys.stderr.flush()
        os._exit(code or 0)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""
"""The interpreter starts once: each command is a fork of it."""


@pytest.mark.processes
def test_commands_whose_input_and_output_are_closed_say_what_is_wrong(tmp_path: Path) -> None:
    starting = {"up", "bench", "namesrv"}
    # These ask nobody and write files, or to nobody: they succeed.
    alone = (["security", "init"], ["config", "init"])
    lines = [
        leaf.line()
        for leaf in LEAVES
        if leaf.words[0] not in starting and list(leaf.words[:2]) not in alone
    ]
    done = subprocess.run(
        [sys.executable, "-c", CLOSED],
        input=repr(lines),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "NAMESRV_ADDR": NOBODY},
    )
    codes = [int(code) for code in done.stdout.split()]
    for number, (line, code) in enumerate(zip(lines, codes, strict=True)):
        check_told(line, code, (tmp_path / f"{number}.told").read_text())
        assert code in (1, 2), line
