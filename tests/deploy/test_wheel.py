"""The wheel, installed where no checkout is: complete, and a cluster runs from it."""

from __future__ import annotations

import email.message
import email.parser
import json
import os
import shutil
import sysconfig
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.wheels import PACKAGES, ROOT, build_present_wheel, install_wheel, run

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_present_wheel(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that has the wheel, and nothing of the checkout."""
    return install_wheel(wheel, tmp_path_factory.mktemp("installed") / "venv")


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return email.parser.BytesParser().parsebytes(archive.read(name))


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {each for each in archive.namelist() if ".dist-info/" not in each}
    packed = {each for each in names if not each.endswith(".so")}
    wanted = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    assert packed == wanted
    assert names - packed == ({"store/message/compiled.abi3.so"} if can_compile() else set())


def can_compile() -> bool:
    header = Path(sysconfig.get_path("include"), "Python.h")
    return header.exists() and shutil.which(sysconfig.get_config_var("CC").split()[0]) is not None


def test_the_metadata_say_what_an_index_shows(wheel: Path) -> None:
    told = metadata(wheel)
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told["Name"] == "dledger"
    assert told["Version"] == project["version"]
    assert told["Requires-Python"] == ">=3.11"
    assert told["License-Expression"] == "Apache-2.0"
    assert told["License-File"] == "LICENSE"
    assert told["Summary"] == project["description"]
    assert told["Description-Content-Type"] == "text/markdown"
    assert str(told.get_payload()).startswith("# ")
    assert told["Author"]
    assert told["Keywords"]
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    needed = [each for each in told.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert len(needed) == len(project["dependencies"])
    assert set(told.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


@pytest.fixture
def directory(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """An empty directory in which a cluster runs, ended with the test."""
    yield tmp_path
    if (tmp_path / "data").exists():
        run(installed / "dledger", "down", cwd=tmp_path)


def test_a_cluster_runs_from_an_empty_directory(installed: Path, directory: Path) -> None:
    dledger = installed / "dledger"
    ports = ("--namesrv-port", "0", "--port", "0", "--http-port", "0")
    run(dledger, "up", "--detach", *ports, cwd=directory)
    config = tomllib.loads((directory / "data" / "broker-a" / "n0" / "node.toml").read_text())
    namesrv = ("--namesrv", config["namesrv"][0])
    run(dledger, "topic", "create", "orders", "-c", "DefaultCluster", *namesrv, cwd=directory)
    run(dledger, "produce", "orders", *namesrv, cwd=directory, stdin="one\ntwo\n")
    read = ("consume", "orders", "--group", "g", "--from", "earliest", "--count", "2", "--json")
    lines = run(dledger, *read, *namesrv, cwd=directory).splitlines()
    assert {json.loads(line)["body"] for line in lines} == {"one", "two"}
    with urllib.request.urlopen(f"http://{config['members']['n0']['http']}/", timeout=10) as page:
        assert b"<html" in page.read()
    processes = json.loads(run(dledger, "status", "--json", *namesrv, cwd=directory))
    pids = [node["pid"] for group in processes["groups"] for node in group["nodes"]]
    for pid in pids:
        assert Path(f"/proc/{pid}/cwd").resolve() == directory
    run(dledger, "down", cwd=directory)
    # A process that nobody waits for keeps its number, but no program.
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)


def test_commands_without_a_cluster_run_as_well(installed: Path, tmp_path: Path) -> None:
    dledger = installed / "dledger"
    run(dledger, "config", "init", "node.toml", cwd=tmp_path)
    assert "can be used" in run(dledger, "config", "check", "node.toml", cwd=tmp_path)
    shown = run(installed / "python", "-m", "simulator", "--help", cwd=tmp_path)
    assert "replay" in shown
