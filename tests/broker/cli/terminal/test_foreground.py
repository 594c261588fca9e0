"""Servers in the foreground: what they say when they serve."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ANNOUNCES = """
import sys
from broker.cli.terminal.foreground import announce
from broker.cli.terminal.output import Output
from broker.system.server_log import LogSettings, ServerLog
ServerLog(LogSettings())
announce({"namesrv": "here"}, "listens here", Output(sys.argv[1]))
print("serves", file=sys.stderr)
"""


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_server_goes_on_where_it_cannot_print_that_it_listens(form: str) -> None:
    with Path("/dev/full").open("ab") as full:
        done = subprocess.run(
            [sys.executable, "-c", ANNOUNCES, form],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    warning, last = done.stderr.splitlines()
    assert done.returncode == 0
    assert warning.endswith(
        "listens here; stdout cannot be written: [Errno 28] No space left on device"
    )
    assert last == "serves"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("broker-a/n0", "broker-a/n0"), ("a-long-name-of-a-group/n12", "of-a-group/n12")],
)
def test_a_server_is_called_by_its_name_in_ps(name: str, shown: str) -> None:
    script = (
        "import sys; from broker.cli.terminal.foreground import show_as; show_as(sys.argv[1]);"
        "print(open('/proc/self/comm').read(), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, name], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith(shown)


STOPS = """
import asyncio, os, signal, sys
from broker.cli.terminal.foreground import run_until_stopped
from broker.system.server_log import LogSettings, ServerLog

async def serve(stop):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    await stop.asked
    return 0

ServerLog(LogSettings())
sys.exit(run_until_stopped(serve, lambda: None))
"""


@pytest.mark.parametrize(
    ("sign", "line"),
    [("SIGTERM", "SIGTERM: stops in order"), ("SIGINT", "SIGINT: stops at once")],
)
def test_the_log_names_the_signal_that_ends_a_server(sign: str, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPS, sign],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert [each.partition(": ")[2] for each in done.stderr.splitlines()] == [line]
