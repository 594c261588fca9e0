"""The audit as a program of its own, on a machine without Java."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import SHORT_LIVED
from tests.spark.snapshots import NODES, flip

ROOT = Path(__file__).parents[2]
# What the scripts of Spark and the launcher of Java call.
TOOLS = ("bash", "sh", "env", "dirname", "basename", "readlink", "uname", "cat", "ps", "tr", "sed")


@pytest.fixture
def damaged(group: Path, tmp_path: Path) -> Path:
    """Snapshots of which that of n1 has a flipped bit."""
    shutil.copytree(group / "broker-a", tmp_path / "broker-a")
    flip(sorted((tmp_path / "broker-a" / NODES[1] / "commitlog").iterdir())[0], 300)
    return tmp_path / "broker-a"


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """In an empty directory: what lies in the working directory goes before other packages."""
    return subprocess.run(
        command,
        env={**SHORT_LIVED, **environment},
        cwd=environment["HOME"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_machine_without_java_needs_nothing_more(damaged: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    assert shutil.which("java", path=str(tools)) is None
    ended = run(
        [sys.executable, "-m", "spark", "audit", str(damaged), "--master", "local[1]", "--json"],
        PATH=str(tools),
        HOME=str(tmp_path),
        PYTHONPATH=str(ROOT),
    )
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)["findings_by_kind"] == {"entry": 1}
    assert (tmp_path / ".cache/dledger/java/bin/java").is_file()
