"""A command that the tests fork is one that they execute."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.forked_commands import command_starter

NOBODY = {"NAMESRV_ADDR": "127.0.0.1:1"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["verify", "nowhere"],
        ["topic", "list"],
        ["topic", "list", "--nonsense"],
        ["produce", "orders"],
        ["topic", "create", "\u00fc"],
    ],
)
def test_a_fork_prints_and_returns_what_an_executed_command_does(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        input=b"one\ntwo\n",
        capture_output=True,
        env=NOBODY,
        check=False,
    )
    monkeypatch.chdir(tmp_path)
    forked = command_starter().run(arguments, NOBODY, b"one\ntwo\n", 60)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        executed.returncode,
        executed.stdout,
        executed.stderr,
    )


def test_a_command_that_does_not_end_in_time_is_killed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        named = {"NAMESRV_ADDR": f"127.0.0.1:{silent.getsockname()[1]}"}
        with pytest.raises(subprocess.TimeoutExpired):
            command_starter().run(["topic", "list"], named, b"", 0.2)
    assert command_starter().run(["--help"], NOBODY, b"", 60).returncode == 0
