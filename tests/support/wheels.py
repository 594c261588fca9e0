"""Builds and installs wheels of this project, for tests without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "dledger", "simulator", "spark", "store")
FILES = ("LICENSE", "README.md", "pyproject.toml")
"""The sources of a wheel."""

COMMAND_SECONDS = 180.0


def run(*command: str | Path, cwd: Path, stdin: str = "") -> str:
    """The output of a program. It does not see our Python path, and must succeed."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(source: Path) -> Path:
    """Builds the wheel of the project in ``source``. The build leaves directories there."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist", ".", cwd=source)
    (found,) = (source / "dist").iterdir()
    return found


def build_present_wheel(source: Path) -> Path:
    """Builds the wheel from a copy, so that it has no remains of an earlier build."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    return build_wheel(source)


def install_wheel(wheel: Path, home: Path) -> Path:
    """The programs of a new environment in ``home``: it has the wheel, and nothing of the checkout.

    The libraries are those of this environment. Its .pth files, and so the checkout, are not.
    """
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    _pip("--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import broker, store; print(broker.__file__)", cwd=home)
    assert where.startswith(str(packages))
    return home / "bin"


def _pip(*arguments: str | Path, cwd: Path) -> None:
    quiet = ("-q", "--disable-pip-version-check", "--no-input")
    run(sys.executable, "-m", "pip", *quiet, *arguments, cwd=cwd)
