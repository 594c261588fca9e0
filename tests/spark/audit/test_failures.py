"""What fails in an audit takes away none of its findings, and never ends with code 1. No Java."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from spark.audit.acknowledged_messages import Acknowledged, check_acknowledged, parse_list
from spark.audit.audit import GroupAudit, run_audit
from spark.audit.spark_task_runner import SparkRun
from spark.cli import main
from spark.errors import last_line
from spark.report import result_files
from store.io.os_filesystem import OsFileSystem
from store.message.batch import QUEUE_ROW
from store.verify import Buffers
from tests.spark.snapshots import NODES, flip

RANGE_BYTES = 4096


def run_here(
    self: SparkRun,
    check: Callable[..., Any],
    shared: Sequence[Any],
    tasks: Sequence[tuple[int, Any]],
) -> list[Any]:
    return [check(OsFileSystem(), shared[of], task, Buffers()) for of, task in tasks]


@pytest.fixture
def replicas(group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Snapshots of three replicas, to be damaged. Tasks run in this process."""
    monkeypatch.setattr(SparkSession, "getActiveSession", object)
    monkeypatch.setattr(SparkRun, "on_executors", run_here)
    shutil.copytree(group / "broker-a", tmp_path / "broker-a")
    return [tmp_path / "broker-a" / node for node in NODES]


def audit(replicas: list[Path], *more: str) -> int:
    return main(["audit", *map(str, replicas), "--range-mib", "1", *more])


def segment(replica: Path) -> Path:
    return min((replica / "commitlog").iterdir())


def first_message(replica: Path) -> Acknowledged:
    """The first message of queue 0 of ``orders``; it is in the first segment."""
    rows = min((replica / "consumequeue" / "orders" / "0").iterdir()).read_bytes()
    position, _size, _tags = QUEUE_ROW.unpack_from(rows)
    return Acknowledged("0A" * 8 + f"{position:016X}", None, 0, 0, "orders")


def groups_of(replicas: list[Path]) -> list[GroupAudit]:
    session: Any = object()
    return run_audit(session, [str(each) for each in replicas], RANGE_BYTES).groups


def refuse(monkeypatch: pytest.MonkeyPatch, *refused: Path) -> None:
    """Lets nobody open some files."""
    opened = OsFileSystem.open

    def open_others(self: OsFileSystem, path: str, **options: bool) -> Any:
        if path in map(str, refused):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(self, path, **options)

    monkeypatch.setattr(OsFileSystem, "open", open_others)


# --- Spark fails


@pytest.mark.parametrize(
    "error",
    [
        PythonException(message="Traceback\n  File x\nMemoryError: too little\n  at java"),
        Py4JError("An error occurred while calling o1.collect.\nx.MemoryError: too little"),
    ],
)
def test_a_failure_of_spark_is_one_line_and_code_2(
    replicas: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def fail(*_arguments: object) -> list[Any]:
        raise error

    monkeypatch.setattr(SparkRun, "__call__", fail)
    monkeypatch.setattr(SparkRun, "on_executors", fail)
    assert audit(replicas) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spark audit: Spark failed: ")
    assert line.endswith("MemoryError: too little")


def test_an_error_that_nobody_expects_has_its_traceback_and_code_2(
    replicas: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object) -> list[Any]:
        raise KeyError("a mistake of the program")

    monkeypatch.setattr(SparkRun, "on_executors", fail)
    assert audit(replicas) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_during_an_import_is_none_of_the_errors_that_nobody_expects(
    replicas: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> list[Any]:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(SparkRun, "on_executors", fail)
    with pytest.raises(RuntimeError, match="__set_name__"):
        audit(replicas)


def test_of_an_error_of_java_its_cause_is_told() -> None:
    said = (
        "An error occurred.\n: x.SparkException: Job aborted\nCaused by: y.IOException: gone\n at"
    )
    assert last_line(Py4JError(said)) == "Caused by: y.IOException: gone"
    assert last_line(Py4JError("no network\nat all")) == "no network"
    assert last_line(Py4JError("")) == "Py4JError"


# --- what comes after the audit fails


@pytest.mark.parametrize("more", ["--duplicates", "--acknowledged"])
def test_findings_are_told_and_written_though_another_check_fails(
    replicas: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    flip(segment(replicas[1]), 300)
    listed, out = tmp_path / "listed", tmp_path / "out"
    listed.write_text(json.dumps({"msg_id": "0A" * 16, "broker": "broker-z"}))
    given = [more, str(listed)] if more == "--acknowledged" else [more]
    # Duplicates are looked for in an undamaged replica, so there is none.
    assert audit([replicas[1]], *given, "--out", str(out)) == 1
    told = capsys.readouterr()
    assert "broker-a/n1: entry" in told.out
    (line,) = told.err.splitlines()
    assert line.startswith("spark audit: ")
    assert {each.name for each in out.iterdir()} == {
        "findings.parquet",
        "ranges.parquet",
        "report.html",
    }


def test_replicas_are_not_called_consistent_if_a_check_could_not_be_made(
    replicas: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "listed"
    listed.write_text(json.dumps({"msg_id": "0A" * 16, "broker": "broker-z"}))
    assert audit(replicas, "--acknowledged", str(listed), "--json") == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["consistent"] is False
    assert "the group broker-z" in told.err


@pytest.mark.parametrize("code", [1, 2])
def test_findings_are_told_though_they_cannot_be_written(
    replicas: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(result_files, "write_tables", fail)
    if code == 1:
        flip(segment(replicas[1]), 300)
    assert audit(replicas, "--out", str(tmp_path / "out")) == code
    told = capsys.readouterr()
    assert ("broker-a/n1: entry" in told.out) is (code == 1)
    assert "No space left on device" in told.err


def test_a_run_that_fails_leaves_no_summary_of_an_earlier_one(
    replicas: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert audit(replicas, "--out", str(out)) == 0
    assert (out / "summary.json").exists()

    def fail(*_arguments: object) -> list[Any]:
        raise Py4JError("killed")

    monkeypatch.setattr(SparkRun, "on_executors", fail)
    assert audit(replicas, "--out", str(out)) == 2
    assert not (out / "summary.json").exists()


# --- acknowledged messages


def test_a_message_that_another_replica_holds_is_not_lost(
    replicas: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = first_message(replicas[0])
    groups, root = groups_of(replicas), str(replicas[0])
    flip(segment(replicas[0]), one.position + 20)
    assert check_acknowledged(root, groups, [one]) == []
    refuse(monkeypatch, segment(replicas[1]))
    assert check_acknowledged(root, groups, [one]) == []
    flip(segment(replicas[2]), one.position + 20)
    (told,) = check_acknowledged(root, groups, [one])
    assert (told.finding.replica, told.finding.unread) == ("broker-a/n0", False)
    assert "the message is lost" in told.finding.advice


def test_a_message_in_a_file_that_may_not_be_read_is_unread(
    replicas: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = first_message(replicas[0])
    groups, root = groups_of(replicas), str(replicas[0])
    refuse(monkeypatch, *map(segment, replicas))
    (told,) = check_acknowledged(root, groups, [one])
    assert (told.kind, told.finding.unread) == ("acknowledged", True)
    assert "lost" not in told.finding.advice


def test_a_replica_that_can_be_read_says_what_is_there_instead(
    replicas: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = first_message(replicas[0])
    other = Acknowledged(one.msg_id, None, topic="another")
    groups, root = groups_of(replicas), str(replicas[0])
    refuse(monkeypatch, segment(replicas[0]))
    (told,) = check_acknowledged(root, groups, [other])
    assert (told.finding.replica, told.finding.unread) == ("broker-a/n1", False)
    assert "of queue 0 of orders" in told.finding.found


def test_separators_within_a_text_of_json_end_no_line() -> None:
    """``dledger consume --json`` writes them as they are."""
    one = "0A" * 8 + f"{97:016X}"
    lines = [
        json.dumps({"msg_id": one, "body": f"a{mark}b"}, ensure_ascii=False)
        for mark in "\u2028\u2029\x85"
    ]
    found = list(parse_list("\r\n".join(lines), "listed"))
    assert [each.position for each in found] == [97, 97, 97]
