"""Servers that are forks of a command: their ends, and what they look like from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from broker.cli.command_line import COMMAND_LINE
from broker.cli.local_cluster.forked_servers import ForkedChild, fork
from broker.cli.local_cluster.managed_processes import DLEDGER

pytestmark = pytest.mark.processes

IMPORTS_A_BROKER = """
import os, sys
from broker.cli.commands.node import import_server
import_server()
print("numpy" in sys.modules, len(os.listdir("/proc/self/task")))
"""

IS_TOLD_TO_END_WHILE_IT_FORKS = """
import os, signal, sys
from broker.cli.local_cluster.forked_servers import fork
from broker.cli.command_line import COMMAND_LINE
from broker.cli.local_cluster.managed_processes import DLEDGER
signal.signal(signal.SIGTERM, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.default_int_handler)
plain_fork = os.fork
def fork_and_signal():
    pid = plain_fork()
    if pid == 0:
        os.kill(os.getpid(), int(sys.argv[1]))
    return pid
os.fork = fork_and_signal
command = os.getpid()
try:
    with open(sys.argv[2], "ab") as log:
        child = fork(COMMAND_LINE, [*DLEDGER, "node", "--config", "nowhere"], log)
    print(child.wait(60.0), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
finally:
    print("ended by the", "command" if os.getpid() == command else "fork", flush=True)
"""

CANNOT_WRITE_ANYTHING = """
import os
from broker.cli.local_cluster.forked_servers import fork
from broker.cli.command_line import COMMAND_LINE
from broker.cli.local_cluster.managed_processes import DLEDGER
command = os.getpid()
try:
    with open("/dev/full", "ab", buffering=0) as log:
        child = fork(COMMAND_LINE, [*DLEDGER, "node", "--config", "nowhere"], log)
    print(child.wait(60.0))
finally:
    print("ended by the", "command" if os.getpid() == command else "fork", flush=True)
"""


def forked(code: int) -> ForkedChild:
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    return ForkedChild(pid)


def forked_for_good() -> ForkedChild:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pause()
        os._exit(0)
    return ForkedChild(pid)


def run_program(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What another interpreter prints, that finds the same modules and has no other environment."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_exit_code_of_a_fork_is_told_as_often_as_it_is_asked_for() -> None:
    child = forked(3)

    assert [child.wait(30.0), child.wait(0.0), child.poll()] == [3, 3, 3]


def test_a_fork_that_runs_has_no_exit_code_and_one_that_was_killed_the_signals() -> None:
    child = forked_for_good()

    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.0)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(30.0) == -signal.SIGKILL


def test_a_process_with_several_threads_executes_and_does_not_fork(tmp_path: Path) -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        with (tmp_path / "log").open("ab") as log:
            child = fork(COMMAND_LINE, [*DLEDGER, "node", "--config", "nowhere"], log)
            assert isinstance(child, subprocess.Popen)
            assert child.wait(60.0) == 2
    finally:
        release.set()
        thread.join()
    assert (tmp_path / "log").read_text().startswith("dledger node: nowhere: ")


@pytest.mark.parametrize(
    ("sig", "code"),
    [
        (signal.SIGINT, 1),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
    ],
)
def test_a_signal_at_once_after_the_fork_does_not_unwind_the_command_in_it(
    sig: signal.Signals, code: int, tmp_path: Path
) -> None:
    """`dledger up` would stop the cluster from the fork, and go on itself."""
    done = run_program(IS_TOLD_TO_END_WHILE_IT_FORKS, str(int(sig)), tmp_path / "log")

    assert done.stdout == f"{code} set()\nended by the command\n"


def test_a_fork_that_cannot_say_why_it_ends_does_not_unwind_the_command() -> None:
    done = run_program(CANNOT_WRITE_ANYTHING)

    assert done.stdout == "1\nended by the command\n"


def test_importing_a_broker_starts_no_thread_and_loads_no_numpy() -> None:
    """Threads would forbid to fork, and NumPy takes half as long as all the rest."""
    done = run_program(IMPORTS_A_BROKER)

    assert done.stdout == "False 1\n"
