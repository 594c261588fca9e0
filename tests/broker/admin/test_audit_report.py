"""The reports of audits that a node tells of."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from broker.admin import audit_report
from broker.admin.audit_report import newest_reports
from broker.limits import ADMIN, AdminLimits

FINDING = {
    "kind": "entry",
    "replica": "broker-a/n1",
    "path": "commitlog/0",
    "position": 300,
    "expected": "this",
    "found": "that",
    "advice": "replace it",
    "majority": [],
}
OF_VERIFY = {
    "consistent": False,
    "replicas": [{"replica": "broker-a/n0"}, {"replica": "broker-a/n1"}],
    "findings": [FINDING],
}
OF_SPARK = {
    "consistent": False,
    "findings": 70,
    "listed": [FINDING] * 50,
    "groups": [{"group": "broker-b", "replicas": [{"replica": "broker-b/n0"}]}],
}


def put(path: Path, document: Any, second: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    os.utime(path, (second, second))


def test_reports_of_both_kinds_are_read_the_newest_first(tmp_path: Path) -> None:
    put(tmp_path / "verify.json", OF_VERIFY, 100)
    put(tmp_path / "today/summary.json", OF_SPARK, 200)
    put(tmp_path / "today/report.html", "<html>", 300)
    put(tmp_path / "being-written.json", "", 400)
    spark, verify = newest_reports(str(tmp_path))
    assert (spark.file, spark.time_ms, spark.findings) == ("today/summary.json", 200_000, 70)
    assert (spark.replicas, len(spark.listed)) == (("broker-b/n0",), 50)
    assert (verify.findings, verify.replicas) == (1, ("broker-a/n0", "broker-a/n1"))
    assert verify.listed == ({key: FINDING[key] for key in FINDING if key != "majority"},)


def test_without_a_directory_or_a_report_there_is_none(tmp_path: Path) -> None:
    assert newest_reports(str(tmp_path)) == []
    assert newest_reports(str(tmp_path / "missing")) == []
    with pytest.raises(NotADirectoryError):
        newest_reports(str(Path(__file__)))


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "7", "{}", '{"consistent": 1}', '{"consistent": true}', "[" * 5000),
        '{"consistent": true, "replicas": [], "findings": true}',
        '{"consistent": true, "replicas": [], "findings": "1"}',
        '{"consistent": true, "replicas": [1], "findings": []}',
        '{"consistent": true, "replicas": [{"replica": 1}], "findings": []}',
        '{"consistent": true, "replicas": [{}], "findings": []}',
        '{"consistent": true, "replicas": [], "findings": [1]}',
        '{"consistent": true, "groups": [{}], "findings": 0}',
        '{"consistent": true, "groups": {}, "findings": 0}',
    ],
)
def test_what_is_no_report_is_told_as_a_problem(tmp_path: Path, text: str) -> None:
    put(tmp_path / "x.json", text, 100)
    put(tmp_path / "good.json", OF_VERIFY, 50)
    wrong, good = newest_reports(str(tmp_path))
    assert wrong.problem.startswith("x.json cannot be read: ")
    assert (wrong.findings, wrong.replicas, good.problem) == (0, (), "")


def test_so_much_is_read_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(json.dumps(OF_VERIFY))
    for number in range(ADMIN.audit_reports_max + 1):
        put(tmp_path / f"{number:03}.json", OF_VERIFY, 100 + number)
    found = newest_reports(str(tmp_path))
    assert len(found) == ADMIN.audit_reports_max
    assert found[0].file == f"{ADMIN.audit_reports_max:03}.json"

    limits = AdminLimits(audit_bytes_max=size - 1)
    monkeypatch.setattr(audit_report, "ADMIN", limits)
    assert "more than" in newest_reports(str(tmp_path))[0].problem
    monkeypatch.setattr(audit_report, "ADMIN", AdminLimits(audit_bytes_max=size))
    assert newest_reports(str(tmp_path))[0].problem == ""
    monkeypatch.setattr(audit_report, "ADMIN", AdminLimits(audit_findings_listed_max=0))
    assert newest_reports(str(tmp_path))[0].listed == ()
    monkeypatch.setattr(audit_report, "ADMIN", AdminLimits(audit_files_max=1))
    assert len(newest_reports(str(tmp_path))) == 1


def test_a_name_that_is_no_text_is_escaped(tmp_path: Path) -> None:
    put(tmp_path / os.fsdecode(b"\xff.json"), OF_VERIFY, 100)
    (found,) = newest_reports(str(tmp_path))
    json.dumps(found.file).encode()
    assert found.file.isprintable()
