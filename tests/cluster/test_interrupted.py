"""Tests that are told to end leave no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import threading
import pytest
from tests.cluster.running_cluster import start_cluster

@pytest.mark.processes
def test_that_does_not_end(tmp_path, capsys):
    running = start_cluster(tmp_path / "data", nodes=1)
    try:
        [node] = running.view().nodes
        with capsys.disabled():
            print(f"\\npid {node.pid}", flush=True)
        threading.Event().wait()
    finally:
        running.stop()
"""


def test_a_broker_is_stopped_when_the_tests_are_told_to_end(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "tests.conftest", "--basetemp", str(tmp_path / "temp"), "test_endless.py"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        try:
            told = next(line for line in tests.stdout if line.startswith("pid "))
            tests.terminate()
            printed, _ = tests.communicate(timeout=60)
        finally:
            tests.kill()
    assert "KeyboardInterrupt" in printed
    assert not Path("/proc", told.removeprefix("pid ").strip()).exists()
