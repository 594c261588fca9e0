"""The audit as a program of its own: on a machine without Java, and handed to ``spark-submit``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from spark.java import find_java_home
from tests.spark.snapshots import NODES, flip

ROOT = Path(__file__).parents[2]
# What the scripts of Spark and the launcher of Java call.
TOOLS = ("bash", "sh", "env", "dirname", "basename", "readlink", "uname", "cat", "ps", "tr", "sed")

# The packages must be those of the archive, on the driver and where tasks run.
SCRIPT = """
import sys
import spark, store
from spark.cli import main
from spark.session import open_session

def places(batches):
    import pyarrow, store
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"path": [store.__file__] * batch.num_rows})

with open_session(None) as session:
    rows = session.range(0, 2, 1, 2).mapInArrow(places, "path string").collect()
    found = [spark.__file__, store.__file__, *(row["path"] for row in rows)]
    assert all("dledger.zip" in path for path in found), found
    sys.exit(main(sys.argv[1:]))
"""


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
        env=environment,
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


def test_spark_submit_takes_the_packages_as_an_archive(damaged: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "dledger.zip", "w") as archive:
        for package in ("spark", "store"):
            for path in sorted((ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    script = tmp_path / "audit.py"
    script.write_text(SCRIPT)
    home = find_java_home(os.environ)
    submit = f"{os.path.dirname(pyspark.__file__)}/bin/spark-submit"
    settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    ended = run(
        [
            *(submit, *settings, "--py-files", str(tmp_path / "dledger.zip"), str(script)),
            *("audit", str(damaged), "--out", str(tmp_path / "out"), "--json"),
        ],
        PATH=os.environ["PATH"],
        HOME=str(tmp_path),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        **({} if home is None else {"JAVA_HOME": home}),
    )
    assert (tmp_path / "out/summary.json").is_file(), ended.stdout + ended.stderr
    assert ended.returncode == 1
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["findings_by_kind"] == {"entry": 1}
