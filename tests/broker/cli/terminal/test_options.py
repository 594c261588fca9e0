"""Options that many commands take: forms of results, clusters by name, and questions."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from broker.cli.command_line import run_command
from broker.cli.terminal.options import ask_first, json_option, namesrv_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command, run_program
from broker.command_error import CommandError

CLUSTERS = """
[one]
namesrv = "10.0.0.1:9876"
access_key = "alice-7f3a"
secret_key = "a-long-secret-of-alice"
[two]
ca = "ca.pem"
"""


@click.command(cls=Command)
@namesrv_option
@json_option
def show(namesrv: str, output: Output) -> None:
    profile = os.environ.get("DLEDGER_PROFILE", "")
    print(json.dumps([namesrv, profile, output.value]))


@pytest.fixture(autouse=True)
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clusters.toml"
    path.write_text(CLUSTERS)
    monkeypatch.setenv("DLEDGER_CLUSTERS", str(path))
    for name in ("NAMESRV_ADDR", "DLEDGER_PROFILE", "DLEDGER_ACCESS_KEY", "DLEDGER_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run_program(show, "show", arguments) == 0
    found: list[str] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        ((), "table"),
        (("--json",), "json"),
        (("-o", "yaml"), "yaml"),
        (("--output=json",), "json"),
        (("-o", "yaml", "--json"), "yaml"),
        (("--json", "-o", "table"), "table"),
    ],
)
def test_json_is_another_name_of_a_form(
    arguments: tuple[str, ...], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, *arguments)[2] == form


@pytest.mark.parametrize(
    ("arguments", "environment", "namesrv"),
    [
        ((), {}, "127.0.0.1:9876"),
        ((), {"NAMESRV_ADDR": "a:1"}, "a:1"),
        ((), {"DLEDGER_PROFILE": "one"}, "10.0.0.1:9876"),
        ((), {"DLEDGER_PROFILE": "two"}, "127.0.0.1:9876"),
        ((), {"DLEDGER_PROFILE": "one", "NAMESRV_ADDR": "a:1"}, "a:1"),
        (("--profile", "one"), {"NAMESRV_ADDR": "a:1"}, "10.0.0.1:9876"),
        (("--profile", "two"), {"NAMESRV_ADDR": "a:1"}, "a:1"),
        (("--profile", "one", "--namesrv", "b:2"), {"NAMESRV_ADDR": "a:1"}, "b:2"),
    ],
)
def test_a_profile_says_where_the_name_server_is(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    namesrv: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert shown(capsys, *arguments)[0] == namesrv


def test_the_environment_is_as_it_was_after_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1")
    before = dict(os.environ)
    assert shown(capsys, "--profile", "one")[1] == "one"
    assert dict(os.environ) == before


def test_an_unknown_cluster_is_told_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["status", "--profile", "nobody"]) == 2
    assert "has no cluster nobody; there are one, two" in capsys.readouterr().err


def test_scripts_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.confirm", lambda *_a, **_k: pytest.fail("somebody is asked"))
    ask_first("Delete all", yes=False)


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_a_no_ends_the_command(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_a, **_k: answer)
    ask_first("Delete all", yes=True)
    if answer:
        ask_first("Delete all", yes=False)
        return
    with pytest.raises(CommandError, match="nothing is done"):
        ask_first("Delete all", yes=False)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["stauts"], "'status'"),
        (["topic", "crate", "x"], "'create'"),
        (["status", "--jsn"], "'--json'"),
        (["dlq", "puge"], "'purge'"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(
    typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(typed) == 2
    told = capsys.readouterr().err
    assert "Did you mean" in told or "(Possible options" in told
    assert meant in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dledger stat", "status"),
        ("dledger topic cr", "create"),
        ("dledger topic create x --per", "--perm"),
        ("dledger status --output y", "yaml"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_values(
    words: str,
    expected: str,
    shell: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = words.rsplit(maxsplit=1)[-1]
    monkeypatch.setenv("_DLEDGER_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", last if shell == "fish" else str(words.count(" ")))
    assert run_command([]) == 0
    assert expected in capsys.readouterr().out.replace(",", "\n").split()


@pytest.mark.processes
def test_a_question_is_asked_on_a_terminal_and_ctrl_c_is_a_no() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "broker", "topic", "delete", "x", "--namesrv", "127.0.0.1:1"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as asked:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, b"n\n")
        assert asked.wait(30) == 1
    os.close(ours)
    assert b"Delete the topic x and all its messages? [y/N]" in shown
