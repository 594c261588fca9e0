"""Which Java is taken, and that the launcher drops one argument and no other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark.errors import JavaError
from spark.java import find_java_home, find_packed_java, has_module, write_launcher


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_first(tmp_path: Path) -> None:
    program(tmp_path / "home/bin/java", "true")
    home = str(tmp_path / "home")
    assert find_java_home({"JAVA_HOME": home, "PATH": "/nowhere"}) == home


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="has no bin/java"):
        find_java_home({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})


def test_java_on_the_path_needs_no_home(tmp_path: Path) -> None:
    program(tmp_path / "java", "true")
    assert find_java_home({"PATH": str(tmp_path)}) is None


def test_without_java_the_wheel_starts_with_the_argument_that_spark_always_gives(
    tmp_path: Path,
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    home = find_java_home({"PATH": str(empty), "XDG_CACHE_HOME": str(tmp_path)})
    assert home == str(tmp_path / "dledger" / "java")
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    packed = find_packed_java()
    assert packed is not None
    alone = subprocess.run([f"{packed}/bin/java", *command[1:]], check=False, capture_output=True)
    assert alone.returncode != 0
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "21." in ended.stderr


def test_the_launcher_hands_on_all_other_arguments_as_they_are(tmp_path: Path) -> None:
    program(tmp_path / "a b/bin/java", 'printf "<%s>" "$@"')
    home = write_launcher(str(tmp_path / "a b"), str(tmp_path / "cache"))
    given = ["-cp", "x y", "--add-modules=jdk.incubator.vector", "", "$HOME", "'q'"]
    ended = subprocess.run([f"{home}/bin/java", *given], check=True, capture_output=True, text=True)
    assert ended.stdout == "<-cp><x y><><$HOME><'q'>"
    assert os.listdir(tmp_path / "cache/bin") == ["java"]


def test_the_release_file_tells_the_modules(tmp_path: Path) -> None:
    assert not has_module(str(tmp_path), "java.base")
    (tmp_path / "release").write_text('JAVA_VERSION="21"\nMODULES="java.base java.sql"\n')
    assert has_module(str(tmp_path), "java.sql")
    assert not has_module(str(tmp_path), "java")
