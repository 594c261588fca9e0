"""A standalone cluster whose workers have what the project needs, and not the project itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

import spark
from spark.cli import main
from spark.errors import JavaError
from spark.package import PACKAGES
from tests.spark.conftest import ROOT, SHORT_LIVED
from tests.spark.snapshots import ENTRIES, NODES, flip

HOME = os.path.dirname(pyspark.__file__)
DEADLINE_SECONDS = 240
# Driver and workers must have all of it from the archive.
SCRIPT = """
import json, sys
import broker, dledger, spark, store
from spark.cli import main
from spark.session import open_session

def places(batches):
    import broker, dledger, pyarrow, spark, store
    paths = [one.__file__ for one in (broker, dledger, spark, store)]
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"path": paths})

with open_session(None) as session:
    rows = session.range(0, 2, 1, 2).mapInArrow(places, "path string").collect()
    found = [spark.__file__, store.__file__, *(row["path"] for row in rows)]
    assert all("dledger.zip" in path for path in found), found
    spark.register(session)
    path = sys.argv[2]
    counts = {
        view: session.read.format("dledger").option("view", view).load(path).count()
        for view in ("entries", "topics")
    }
    with open(sys.argv[1], "w") as file:
        json.dump(counts, file)
    sys.exit(main(["audit", *sys.argv[2:]]))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of the cluster's processes: a Python that does not know of an installed project."""
    found = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    found |= SHORT_LIVED
    if "JAVA_HOME" in os.environ:
        found["JAVA_HOME"] = os.environ["JAVA_HOME"]
    try:
        spark.use_java(found)
    except JavaError as error:
        pytest.skip(f"no Java to run Spark's master and workers with: {error}")
    bare = tmp_path / "python"
    packages = site.getsitepackages()[0]
    # Without the module site no .pth file is read, which is how a project in the making is known.
    bare.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    bare.chmod(0o755)
    known = "import importlib.util as u; print([u.find_spec(n) for n in ('spark', 'store')])"
    told = subprocess.run(
        [bare, "-c", known], cwd=tmp_path, check=True, capture_output=True, text=True, env=found
    )
    assert told.stdout == "[None, None]\n"
    return {**found, "PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": str(bare)}


@contextmanager
def daemon(
    name: str, arguments: list[str], environment: dict[str, str], log: Path
) -> Iterator[Path]:
    """One of Spark's servers, until the end; what it says is in ``log``."""
    command = [f"{HOME}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment, cwd=environment["HOME"], stdout=out, stderr=out
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def await_line(log: Path, pattern: str) -> str:
    """What the first group of the pattern is in the log, as soon as it is there."""
    began = time.monotonic()
    while time.monotonic() - began < DEADLINE_SECONDS:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not in {log.read_text(errors='replace')}")


def test_a_cluster_of_bare_workers_needs_the_archive_alone(
    group: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    archive = tmp_path / "dledger.zip"
    assert main(["package", str(archive)]) == 0
    replicas = tmp_path / "broker-a"
    shutil.copytree(group / "broker-a", replicas)
    flip(sorted((replicas / NODES[1] / "commitlog").iterdir())[0], 300)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with daemon(
        "master.Master", [*here, "--port", "0"], environment, tmp_path / "master"
    ) as master:
        url = await_line(master, r"Starting Spark master at (spark://\S+)")
        work = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), url]
        with daemon("worker.Worker", [*here, *work], environment, tmp_path / "worker") as worker:
            await_line(worker, r"(Successfully registered) with master")
            ended = subprocess.run(
                [
                    *(f"{HOME}/bin/spark-submit", "--master", url),
                    *("--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"),
                    *("--py-files", str(archive), str(script), str(tmp_path / "counts")),
                    *(str(replicas), "--out", str(tmp_path / "out")),
                ],
                env=environment,
                cwd=tmp_path,
                check=False,
                capture_output=True,
                text=True,
                timeout=DEADLINE_SECONDS,
            )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["findings_by_kind"] == {"entry": 1}
    counts = json.loads((tmp_path / "counts").read_text())
    # The template of automatic topics is the one topic of each.
    assert counts == {"entries": 3 * ENTRIES, "topics": 3}


def test_the_archive_has_every_module_and_the_same_bytes_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one.zip", tmp_path / "other.egg"
    assert main(["package", str(one)]) == main(["package", str(other)]) == 0
    assert one.read_bytes() == other.read_bytes()
    there = (path for package in PACKAGES for path in Path(ROOT, package).rglob("*.py"))
    expected = sorted(str(path.relative_to(ROOT)) for path in there)
    assert sorted(zipfile.ZipFile(one).namelist()) == expected
    capsys.readouterr()
    for name, why in (("x.whl", "must end with .zip or .egg"), ("no/x.zip", "cannot be written")):
        assert main(["package", str(tmp_path / name)]) == 2
        assert why in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.zip", "other.egg"]
