"""Every command with arguments that make no sense: one line that can be read, and no traceback.

The commands, options and arguments are found in the parsers, so a new one is tested too.
Nothing is started and nobody is reached: the NameServer is at a port where nobody listens.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from broker.cli.command_line import dledger, run_command
from broker.cli.commands import node
from broker.cli.local_cluster import managed_processes
from broker.cli.terminal import foreground
from broker.cli.terminal.options import DIRECTORY
from broker.command_error import CommandError
from tests.support.command_leaves import Leaf, leaves_of
from tests.support.odd_files import make_odd_file
from tests.support.search_effort import sample

NOBODY = "127.0.0.1:1"
HUGE = "x" * 20_000
TOLD_MAX = 3_000
"""Characters of one line."""

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

LEAVES = list(leaves_of(dledger))
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
    monkeypatch.setattr("broker.cli.commands.node.import_server", lambda **_: None)
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
            code = run_command(arguments)
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
    assert told.startswith("dledger"), f"{what}: {told}"
    assert told.count("\n") == 1, f"{what}: {told}"


@BY_NAME
def test_no_value_makes_a_command_fail_but_in_one_line(leaf: Leaf, run: Run) -> None:
    for param in leaf.values():
        for bad in sample(BAD.values()):
            arguments = leaf.line(param, bad)
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
        *([[*leaf.words]] if any(param.required for param in leaf.params) else []),
    ):
        code, out, told = run(arguments)
        check_told(arguments, code, told)
        assert (code, out) == (2, "")


@pytest.mark.parametrize(
    ("leaf", "kind"),
    sample(
        pytest.param(leaf, kind, id=f"{leaf.name}-{kind}")
        for leaf in LEAVES
        for kind in ("fifo", "directory", "loop", "huge", "bytes", "nested", "empty")
    ),
)
def test_odd_files_in_a_cluster_directory_are_told(
    leaf: Leaf, kind: str, run: Run, tmp_path: Path
) -> None:
    """In the place of settings, of a pid, and of what is given as a path."""
    home = tmp_path / "data/broker-a/n1"
    home.mkdir(parents=True)
    for name in ("data/broker-a/n1/node.toml", "data/broker-a/n1/pid", "node.toml", "given"):
        make_odd_file(tmp_path / name, kind)
    paths = [each for each in leaf.values() if each.type is DIRECTORY or each.name == "path"]
    for arguments in (leaf.line(), *(leaf.line(each, "given") for each in paths)):
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
import ast, os, pkgutil, sys
from importlib import import_module
from broker.cli import commands
from broker.cli.main import main
for module in pkgutil.iter_modules(commands.__path__, "broker.cli.commands."):
    if module.name.rpartition(".")[2] not in ("backup", "restore", "verify", "bench"):
        import_module(module.name)
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
"""The interpreter starts once: each command is a fork of it. It imports the commands once, too, but
for those whose imports start threads, or gRPC."""


@pytest.mark.processes
def test_commands_whose_input_and_output_are_closed_say_what_is_wrong(tmp_path: Path) -> None:
    left_out = {"up", "bench", "namesrv", "completion"}  # start servers, or only print
    # These ask nobody and write files, or to nobody: they succeed.
    alone = (["security", "init"], ["config", "init"])
    lines = [
        leaf.line()
        for leaf in LEAVES
        if leaf.words[0] not in left_out and list(leaf.words[:2]) not in alone
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
