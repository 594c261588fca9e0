"""Into which file a server logs, from which level on, and how that changes while it runs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.system.server_log import LogSettings, ServerLog, set_level


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """The root logger is as it was before."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def test_level_and_format_change_while_the_server_runs(capfd: pytest.CaptureFixture[str]) -> None:
    server_log = ServerLog(LogSettings(), "g/n0")
    log = logging.getLogger("dledger.test")
    log.debug("one")
    log.info("two")
    server_log.configure(LogSettings("debug", "json"))
    log.debug("three")
    server_log.configure(LogSettings("error", "json"))
    log.warning("four")
    set_level("warning")
    log.warning("five")
    server_log.configure(LogSettings("error", "text"))  # no other level: a command's stays
    log.warning("six")
    first, second, third, fourth = capfd.readouterr().err.splitlines()
    assert first.endswith("INFO dledger.test: two")
    assert [json.loads(line)["message"] for line in (second, third)] == ["three", "five"]
    assert json.loads(second)["node"] == "g/n0"
    assert fourth.endswith("WARNING dledger.test: six")


WRITES = """
import logging, sys
from broker.system.log_lines import LogLimits
from broker.system.server_log import LogSettings, ServerLog
ServerLog(LogSettings(limits=LogLimits(file_size=2000, files=int(sys.argv[1]))))
for number in range(100):
    logging.getLogger("test").info("line %03d %s", number, "x" * 50)
print("printed", flush=True)
print("the last", file=sys.stderr)
"""


def write(log: Path, files: int, mode: str = "ab", *, both: bool = True) -> str:
    """Runs a server's log in a process of its own; returns what went to stdout, if elsewhere."""
    with log.open(mode) as stderr:
        done = subprocess.run(
            [sys.executable, "-c", WRITES, str(files)],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=stderr if both else subprocess.PIPE,
            stderr=stderr,
            check=True,
        )
    return "" if both else done.stdout.decode()


@pytest.mark.processes
def test_a_file_that_is_appended_to_rotates(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("before\n")
    os.chmod(log, 0o640)
    write(log, 3)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["node.log", "node.log.1", "node.log.2"]
    assert all(path.stat().st_size < 2200 for path in tmp_path.iterdir())
    assert log.stat().st_mode & 0o777 == 0o640
    text = "".join((tmp_path / name).read_text() for name in reversed(files))
    numbers = [int(line.split()[4]) for line in text.splitlines() if "line" in line]
    assert numbers == list(range(numbers[0], 100))  # none is lost between two files
    assert log.read_text().endswith("printed\nthe last\n")


@pytest.mark.processes
def test_of_one_file_nothing_older_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "node.log", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["node.log"]
    assert (tmp_path / "node.log").stat().st_size < 2200


@pytest.mark.processes
def test_stdout_stays_where_it_is_if_that_is_elsewhere(tmp_path: Path) -> None:
    assert write(tmp_path / "node.log", 3, both=False) == "printed\n"
    assert (tmp_path / "node.log").read_text().endswith("the last\n")


@pytest.mark.processes
def test_a_file_that_is_not_appended_to_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "node.log", 3, "wb")
    assert [path.name for path in tmp_path.iterdir()] == ["node.log"]
    assert "line 000" in (tmp_path / "node.log").read_text()


@pytest.mark.processes
def test_where_no_file_can_be_made_the_log_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    (tmp_path / "node.log.1").mkdir()
    (tmp_path / "node.log.1" / "full").touch()
    write(log, 2)
    assert "line 000" in log.read_text()
    assert log.read_text().endswith("the last\n")


REOPENS = """
import logging, os, sys
from broker.system.server_log import LogSettings, ServerLog
from broker.system.log_lines import LogLimits
server_log = ServerLog(LogSettings(limits=LogLimits(file_size=2000)))
log = logging.getLogger("test")
log.info("before")
os.rename("node.log", "moved")
log.info("moved %s", "x" * 3000)  # what somebody moves away does not rotate
log.info("still moved")
server_log.reopen()
log.info("after")
print("printed", flush=True)
"""


@pytest.mark.processes
def test_a_file_that_was_moved_away_is_opened_again_under_its_name(tmp_path: Path) -> None:
    with (tmp_path / "node.log").open("ab") as stderr:
        subprocess.run(
            [sys.executable, "-c", REOPENS],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
            stdout=stderr,
            stderr=stderr,
            check=True,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved", "node.log"]
    moved, fresh = (tmp_path / name for name in ("moved", "node.log"))
    assert [line.split()[3] for line in moved.read_text().splitlines()] == [
        "before",
        "moved",
        "still",
    ]
    after, printed = fresh.read_text().splitlines()
    assert after.endswith("test: after")
    assert printed == "printed"
