"""The summary of an audit, as those read it who have no Parquet."""

from __future__ import annotations

import json
from pathlib import Path

from broker.admin.audit_report import newest_reports
from spark.audit.audit import Audit, GroupFinding
from spark.report.result_files import LISTED_MAX, summarize, write_summary
from store.verify.findings import Finding, FindingKind

ODD_NAME = "commitlog/\udcff"
"""Of a file whose name is no UTF-8."""


def finding(position: int) -> GroupFinding:
    found = Finding(
        FindingKind.ENTRY, "broker-a/n1", 1, 1, ODD_NAME, position, "this", "that", "replace it"
    )
    return GroupFinding(found, "broker-a")


def test_a_broker_reads_the_first_findings_from_the_summary(tmp_path: Path) -> None:
    audit = Audit(findings=[finding(position) for position in range(LISTED_MAX + 1)])
    write_summary(str(tmp_path), summarize(audit))
    json.loads((tmp_path / "summary.json").read_bytes())
    (report,) = newest_reports(str(tmp_path))
    assert (report.problem, report.findings) == ("", LISTED_MAX + 1)
    assert [each["position"] for each in report.listed] == [*range(LISTED_MAX)]
    assert report.listed[0] == {
        "kind": "entry",
        "replica": "broker-a/n1",
        "path": r"commitlog/\udcff",
        "position": 0,
        "expected": "this",
        "found": "that",
        "advice": "replace it",
    }
