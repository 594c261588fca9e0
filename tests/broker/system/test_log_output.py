"""What a server writes about itself: how long, how often, and into which file."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.limits import LogLimits
from broker.system.log_output import BoundedFormatter, RepeatedLineFilter
from store.quoting import FROM_OUTSIDE

LIMITS = LogLimits(line_max=200, repeat_seconds=10.0)


class Lines(logging.Handler):
    """Keeps what passes, as it would be written. ``now`` is the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lines: list[str] = []
        self.setFormatter(BoundedFormatter(LIMITS))
        self.addFilter(RepeatedLineFilter(LIMITS, lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def handler() -> Lines:
    return Lines()


@pytest.fixture
def log(handler: Lines) -> logging.Logger:
    logger = logging.Logger("dledger.test")
    logger.addHandler(handler)
    return logger


def test_of_lines_that_anybody_can_cause_one_of_a_kind_is_shown(
    log: logging.Logger, handler: Lines
) -> None:
    for number in range(1000):
        log.warning("%d: closed", number, extra=FROM_OUTSIDE)
        log.warning("refused %d", number, extra=FROM_OUTSIDE)
        handler.now += 0.005
    assert [line.split(": ", 1)[1] for line in handler.lines] == ["0: closed", "refused 0"]


def test_the_next_line_says_how_many_were_not_shown(log: logging.Logger, handler: Lines) -> None:
    for _ in range(5):
        log.warning("%s: closed", "peer", extra=FROM_OUTSIDE)
    handler.now = 10.0
    log.warning("%s: closed", "peer", extra=FROM_OUTSIDE)
    handler.now = 20.0
    log.warning("%s: closed", "peer", extra=FROM_OUTSIDE)
    assert [line.split(": ", 1)[1] for line in handler.lines] == [
        "peer: closed",
        "peer: closed (and 4 more like it, not shown)",
        "peer: closed",
    ]


def test_what_the_server_does_itself_is_always_shown(log: logging.Logger, handler: Lines) -> None:
    for number in range(3):
        log.error("entry %d is damaged", number)
    assert len(handler.lines) == 3


def test_made_up_kinds_do_not_stay(log: logging.Logger, handler: Lines) -> None:
    (few,) = handler.filters
    assert isinstance(few, RepeatedLineFilter)
    for number in range(5000):
        log.warning(f"kind {number}", extra=FROM_OUTSIDE)
    assert len(few._kinds) == 5000 % LIMITS.kinds_max


def test_a_long_line_is_cut(log: logging.Logger, handler: Lines) -> None:
    log.warning("closed: %s", "x" * 1_000_000)
    (line,) = handler.lines
    assert len(line) < 300
    assert "WARNING dledger.test: closed: xxx" in line


def test_a_long_traceback_keeps_what_was_raised(log: logging.Logger, handler: Lines) -> None:
    try:
        raise ValueError("x" * 1_000_000 + " the end")
    except ValueError as error:
        log.exception("failed", exc_info=error)
    (text,) = handler.lines
    assert len(text) < 700
    assert text.endswith("the end")
    assert "Traceback" in text


WRITES = """
import logging, sys
from broker.limits import LogLimits
from broker.system.log_output import log_to_stderr
log_to_stderr(LogLimits(file_size=2000, files=int(sys.argv[1])))
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
    numbers = [int(line.split()[5]) for line in text.splitlines() if "line" in line]
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
