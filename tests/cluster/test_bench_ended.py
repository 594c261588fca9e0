"""`dledger bench` that is told to end, or cannot begin, leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.running_cluster import (
    COMMAND_SECONDS,
    END_SECONDS,
    LOOK_AGAIN_SECONDS,
    while_needed,
)


def bench(directory: Path) -> list[str]:
    return [sys.executable, "-m", "broker", "bench", "produce", "--dir", str(directory)]


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_that_is_told_to_end_leaves_nothing(
    sig: signal.Signals, tmp_path: Path
) -> None:
    pids: list[int] = []
    try:
        with while_needed(subprocess.Popen(bench(tmp_path), stderr=subprocess.PIPE)) as command:
            ends_at = time.monotonic() + COMMAND_SECONDS
            while not list(tmp_path.glob("*/broker-a/n2/pid")):
                assert time.monotonic() < ends_at, "no cluster is started"
                time.sleep(LOOK_AGAIN_SECONDS)
            pids += [int(path.read_text().split()[0]) for path in tmp_path.rglob("pid")]
            command.send_signal(sig)
            _, errors = command.communicate(timeout=END_SECONDS)

        assert (command.returncode, errors) == (130, b"")
        assert list(tmp_path.iterdir()) == []
        assert len(pids) == 4
        assert not [pid for pid in pids if Path("/proc", str(pid)).exists()]
    except BaseException:  # a test that fails must leave nothing either
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def test_a_directory_that_is_not_there_is_told_with_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing"

    done = subprocess.run(bench(missing), capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr == (
        f"dledger bench: no directory can be made in {missing}: No such file or directory; "
        "choose another with --dir\n"
    )
