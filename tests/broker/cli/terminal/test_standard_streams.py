"""Commands whose standard streams are closed, full, or read by nobody, and one that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

COMMAND_SECONDS = 60


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Runs the line, in which ``dledger`` is the command under test."""
    command = f"dledger() {{ exec '{sys.executable}' -m broker \"$@\"; }}; {line}"
    return subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_fails_as_ever_where_standard_streams_are_closed(closed: str) -> None:
    done = shell(f"dledger produce t --namesrv 127.0.0.1:1 {closed}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == (0 if "2>&-" in closed else 1)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_an_event_loop_gets_no_descriptor_of_a_closed_stream(closed: str) -> None:
    program = (
        "from broker.cli.terminal.standard_streams import open_missing_streams\n"
        "open_missing_streams()\n"
        "import sys, uvloop; loop = uvloop.new_event_loop(); loop.close()\n"
        "sys.stdin.read(); print('out', flush=True); print('err', file=sys.stderr)"
    )
    done = shell(f"exec '{sys.executable}' -c \"{program}\" {closed}")
    assert done.returncode == 0
    assert done.stdout == ("" if closed == ">&-" else "out\n")
    assert done.stderr == ("" if closed == "2>&-" else "err\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])  # each write fails by itself, or the last flush
@pytest.mark.parametrize(
    "line", ["dledger --help", "dledger status --help", "dledger topic list --help"]
)
def test_output_for_which_there_is_no_room_is_one_line_and_a_failure(
    line: str, unbuffered: str
) -> None:
    done = shell(f"export PYTHONUNBUFFERED={unbuffered}; {line} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot write what it prints: No space left on device" in done.stderr


def run_unread(*arguments: str) -> tuple[int, bytes]:
    """Exit code and stderr of Python, where nobody reads what it prints."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    return done.returncode, done.stderr


def test_help_that_nobody_reads_is_not_complained_of() -> None:
    assert run_unread("-m", "broker", "--help") == (0, b"")


def test_a_result_that_nobody_reads_to_its_end_is_no_success() -> None:
    program = (
        "import importlib, sys, types\n"
        "from broker.cli.main import main\n"
        "from broker.cli.terminal.program import Command\n"
        "command = Command('verify', callback=lambda: print('found' * 100_000))\n"
        "module = types.SimpleNamespace(command=command)\n"
        "importlib.import_module = lambda name: module\n"
        "sys.exit(main(['verify']))"
    )
    assert run_unread("-c", program) == (1, b"")


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word() -> None:
    program = (
        "import importlib, os, signal\n"
        "from broker.cli.main import main\n"
        "importlib.import_module = lambda name: os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "main(['status'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


def test_the_version_is_told() -> None:
    done = shell("dledger --version")
    assert done.returncode == 0
    assert done.stdout.startswith("dledger ")
