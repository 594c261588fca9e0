"""Background processes: found again by pid and start time, and ended for certain."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from broker.cli.local_cluster import managed_processes
from broker.cli.local_cluster.managed_processes import (
    PID_FILE,
    Child,
    ManagedProcess,
    end_processes,
    execute,
)
from broker.command_error import CommandError
from tests.support.odd_files import make_odd_file

pytestmark = pytest.mark.processes

WAITS = "import signal; signal.pause()"
IGNORES_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('deaf', flush=True)\n"
    "while True: signal.pause()"
)
FAILS = "import sys; print('first', flush=True); sys.exit('no such luck')"


def managed(directory: Path, script: str) -> ManagedProcess:
    return ManagedProcess(
        "it", directory, [sys.executable, "-c", script], directory / "log" / "it.log"
    )


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[ManagedProcess]:
    process = managed(tmp_path, WAITS)
    process.start()
    yield process
    end_processes([process], kill=True)


def test_a_started_process_is_found_by_another_program(
    waiting: ManagedProcess, tmp_path: Path
) -> None:
    assert managed(tmp_path, WAITS).pid == waiting.pid is not None


def test_a_second_start_is_refused_while_the_first_runs(waiting: ManagedProcess) -> None:
    with pytest.raises(CommandError, match="it is running already"):
        waiting.start()


def test_a_process_is_known_although_a_signal_comes_while_it_is_started(tmp_path: Path) -> None:
    started: list[Child] = []

    def interrupted(arguments: Sequence[str], log: BinaryIO) -> Child:
        started.append(execute(arguments, log))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    process = managed(tmp_path, WAITS)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.start(interrupted)
        assert process.pid == started[0].pid
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        end_processes([process], kill=True)


def test_a_process_whose_pid_cannot_be_written_down_is_ended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(path: Path, _text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(managed_processes, "write_atomically", write_nothing)
    process = managed(tmp_path, WAITS)

    with pytest.raises(CommandError, match=r"it is not started: .*/pid: No space left on device;"):
        process.start()

    assert process.exit_code == -signal.SIGKILL


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CommandError, match=r"it is not started: .*/file/log: Not a directory;"):
        managed(tmp_path / "file", WAITS).start()


def test_a_process_of_the_same_number_but_another_start_is_not_taken_for_it(
    waiting: ManagedProcess, tmp_path: Path
) -> None:
    pid_file = tmp_path / PID_FILE
    recorded = pid_file.read_text()
    pid, started, home = recorded.split()
    pid_file.write_text(f"{pid} {int(started) - 1} {home}\n")

    assert waiting.pid is None
    assert end_processes([waiting], kill=True) == {}

    pid_file.write_text(recorded)
    assert waiting.pid == int(pid)


def test_a_copy_of_the_directory_does_not_own_the_process(
    waiting: ManagedProcess, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path, tmp_path / "copy", symlinks=True)
    copy = managed(tmp_path / "copy", WAITS)
    assert copy.pid is None
    assert end_processes([copy], kill=True) == {}
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    pid = waiting.pid
    tmp_path.rename(moved)
    try:
        assert managed(moved, WAITS).pid == pid is not None
    finally:
        moved.rename(tmp_path)


@pytest.mark.parametrize("kind", ["fifo", "directory", "huge", "bytes", "digits", "negative"])
def test_a_pid_file_that_is_none_names_no_process(kind: str, tmp_path: Path) -> None:
    make_odd_file(tmp_path / PID_FILE, kind)
    process = managed(tmp_path, WAITS)
    assert process.pid is None
    assert end_processes([process], kill=True) == {}
    if kind == "directory":
        with pytest.raises(CommandError, match=r"it is not started: .*/pid: Is a directory"):
            process.start()
        return
    process.start()
    assert list(end_processes([process], kill=True)) == ["it"]


def test_a_log_that_is_a_pipe_is_told_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    os.mkfifo(tmp_path / "log/it.log")
    process = managed(tmp_path, WAITS)
    assert process.last_words() == ""
    with pytest.raises(CommandError, match=r"it is not started: .*/it\.log: No such device"):
        process.start()


def test_ending_returns_when_the_process_is_gone(waiting: ManagedProcess) -> None:
    pid = waiting.pid

    assert end_processes([waiting], kill=False) == {"it": pid}
    assert waiting.pid is None


def test_a_process_that_ignores_the_request_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_processes, "KILLED_SECONDS", 0.5)
    process = managed(tmp_path, IGNORES_SIGTERM)
    process.start()

    end_processes([process], kill=False)

    assert process.pid is None


def test_ending_what_does_not_run_does_nothing(tmp_path: Path) -> None:
    assert end_processes([managed(tmp_path, WAITS)], kill=True) == {}


def test_a_process_that_failed_is_described_with_its_last_words(tmp_path: Path) -> None:
    process = managed(tmp_path, FAILS)
    process.start()
    process.reap(timeout_s=30.0)

    assert process.describe_end() == "it ended with exit code 1: no such luck"
