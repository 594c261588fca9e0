"""The signals that ask a command to end: held back, ignored, and made a Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

HOLDS_BACK = """
import signal, subprocess, sys
from broker.cli.terminal.signals import signals_blocked
with signals_blocked():
    signal.raise_signal(int(sys.argv[1]))
    blocked = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)"
    subprocess.run([sys.executable, "-c", blocked], check=True)
    print("done", flush=True)
print("not reached", flush=True)
"""

IGNORES_SIGHUP = """
import signal
from broker.cli.terminal.signals import signals_blocked, handled_signals, interrupt_on_ending
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupt_on_ending()
with signals_blocked():
    signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGHUP)
print(sorted(sig.name for sig in handled_signals()))
"""

IS_INTERRUPTED = """
import signal
from broker.cli.terminal.signals import interrupt_on_ending
interrupt_on_ending()
for sig in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    try:
        signal.raise_signal(sig)
    except KeyboardInterrupt:
        print(sig.name)
"""

IS_INTERRUPTED_IN_AN_EVENT_LOOP = """
import asyncio, signal
from broker.cli.terminal.signals import interrupt_on_ending
async def serve():
    signal.raise_signal(signal.SIGTERM)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("cancelled")
        raise
interrupt_on_ending()
try:
    asyncio.run(serve())
except KeyboardInterrupt:
    print("interrupted")
"""


def run(script: str, *arguments: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("number", [1, 2, 15])
def test_a_signal_ends_the_program_behind_the_block_and_is_blocked_in_no_process(
    number: int,
) -> None:
    done = run(HOLDS_BACK, number)

    assert done.stdout == "set()\ndone\n"
    assert done.returncode == -number


def test_a_signal_that_is_ignored_stays_so() -> None:
    assert run(IGNORES_SIGHUP).stdout == "['SIGINT', 'SIGTERM']\n"


def test_the_first_signal_interrupts_and_after_it_only_ctrl_c_does() -> None:
    assert run(IS_INTERRUPTED).stdout == "SIGHUP\nSIGINT\n"


def test_an_event_loop_that_is_interrupted_lets_its_tasks_end() -> None:
    assert run(IS_INTERRUPTED_IN_AN_EVENT_LOOP).stdout == "cancelled\ninterrupted\n"
