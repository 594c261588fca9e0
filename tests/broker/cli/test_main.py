"""The door of the command line: which command, and how its failure is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker.cli.command_line import COMMANDS
from broker.cli.main import main


def run(*arguments: str) -> int:
    return main(arguments)


def test_no_command_is_bad_usage_and_shows_the_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 2
    assert "Start a local cluster" in capsys.readouterr().err


def test_an_unknown_command_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pu") == 2
    assert "'pu'" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help") == 0
    shown = capsys.readouterr().out
    assert f"Examples:\n  dledger {command}" in shown or "| dledger" in shown


@pytest.mark.parametrize(("command", "option"), [("up", "--namesrv-port"), ("namesrv", "--port")])
def test_a_port_above_the_last_is_bad_usage(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, option, "75000") == 2
    assert "75000 is not in the range 0<=x<=65535" in capsys.readouterr().err


def test_bad_usage_of_a_command_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("up", "--nodes", "0") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "0 is not in the range 1<=x<=9" in captured.err


def test_a_mistake_in_a_selector_is_told_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("consume", "orders", "--group", "g", "--sql", "size <") == 2
    assert "size <" in capsys.readouterr().err


def test_an_unreachable_nameserver_is_one_line_that_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("status", "--namesrv", "127.0.0.1:1") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "no NameServer answers (cannot connect to 127.0.0.1:1" in captured.err
    assert "`dledger up`" in captured.err


@pytest.mark.processes
def test_the_overview_imports_no_part_of_the_broker() -> None:
    script = (
        "import sys; from broker.cli.main import main\n"
        "main(['--help'])\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('asyncio', 'aiohttp', 'numpy', 'store', 'dledger')], file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stderr.strip() == "[]"
