"""The files that an audit writes: ``findings.parquet``, ``ranges.parquet`` and ``summary.json``.

The columns are those of the two schemas below. ``ranges`` has a row for each range and replica. Its
``seconds`` and ``bytes_read`` are those of the task, for all replicas together. ``summary.json`` is
written last, and removed when an audit begins. If it exists, the rest is complete.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark.audit.audit import Audit
from store.io.filesystem import FileSystem
from store.verify import Finding
from store.verify.findings import one_line
from store.verify.replay.state_check import compare_states

CONTEXT_BYTES = 32
LISTED = ("replica", "path", "position", "expected", "found", "advice")
LISTED_MAX = 50

FINDINGS = pa.schema(
    [
        ("kind", pa.string()),
        ("group", pa.string()),
        ("replica", pa.string()),
        ("index_first", pa.int64()),
        ("index_last", pa.int64()),
        ("path", pa.string()),
        ("position", pa.int64()),
        ("expected", pa.string()),
        ("found", pa.string()),
        ("majority", pa.list_(pa.string())),
        ("advice", pa.string()),
        ("context_position", pa.int64()),
        ("context", pa.binary()),
        ("majority_context", pa.binary()),
    ]
)
RANGES = pa.schema(
    [
        ("group", pa.string()),
        ("number", pa.int64()),
        ("first_index", pa.int64()),
        ("last_index", pa.int64()),
        ("replica", pa.string()),
        ("agreement", pa.string()),
        ("entries", pa.int64()),
        ("messages", pa.int64()),
        ("bytes_read", pa.int64()),
        ("findings", pa.int64()),
        ("seconds", pa.float64()),
    ]
)


def read_context(fs: FileSystem, path: str, position: int) -> tuple[int, bytes]:
    """The bytes around ``position``, and the position of the first of them. No bytes if the file
    cannot be read."""
    start = max(0, position - CONTEXT_BYTES)
    try:
        file = fs.open(path, writable=False)
        try:
            return start, file.pread(position - start + CONTEXT_BYTES, start)
        finally:
            file.close()
    except (OSError, ValueError, OverflowError):
        return start, b""


def majority_path(audit: Audit, finding: Finding) -> str | None:
    """The same file of a replica in the majority."""
    replicas = {
        replica.name: replica.directory for group in audit.groups for replica in group.plan.replicas
    }
    own = replicas.get(finding.replica)
    other = next((replicas[name] for name in finding.majority if name in replicas), None)
    if own is None or other is None or not finding.path.startswith(f"{own}/"):
        return None
    return other + finding.path.removeprefix(own)


def finding_rows(fs: FileSystem, audit: Audit) -> list[dict[str, Any]]:
    rows = []
    for reported in audit.findings:
        finding = reported.finding
        start, context = read_context(fs, finding.path, finding.position)
        other = majority_path(audit, finding)
        right = b"" if other is None else read_context(fs, other, finding.position)[1]
        rows.append(
            {
                "kind": reported.kind,
                "group": reported.group,
                "replica": one_line(finding.replica),
                "index_first": finding.index_first,
                "index_last": finding.index_last,
                "path": one_line(finding.path),
                "position": finding.position,
                "expected": one_line(finding.expected),
                "found": one_line(finding.found),
                "majority": [one_line(name) for name in finding.majority],
                "advice": finding.advice,
                "context_position": start,
                "context": context,
                "majority_context": right,
            }
        )
    return rows


def range_rows(audit: Audit) -> list[dict[str, Any]]:
    rows = []
    for group in audit.groups:
        for result in sorted(group.results, key=lambda result: result.number):
            for replica, word in zip(group.plan.replicas, result.agreement, strict=True):
                found = [one for one in result.findings if one.replica == replica.name]
                rows.append(
                    {
                        "group": group.plan.group,
                        "number": result.number,
                        "first_index": result.first_index,
                        "last_index": result.last_index,
                        "replica": replica.name,
                        "agreement": word,
                        "entries": result.entries,
                        "messages": result.messages,
                        "bytes_read": result.bytes_read,
                        "findings": len(found),
                        "seconds": group.seconds[result.number],
                    }
                )
    return rows


def summarize(audit: Audit) -> dict[str, Any]:
    """The summary as one document.

    ``findings_by_kind``: the number of findings by kind. ``listed``: the first :data:`LISTED_MAX`
    findings, for readers without Parquet.
    """
    kinds = Counter(reported.kind for reported in audit.findings)
    return {
        "consistent": not audit.findings and not audit.unfinished,
        "bytes_read": audit.bytes_read,
        "scan_seconds": round(audit.scan_seconds, 3),
        "findings": len(audit.findings),
        "findings_by_kind": dict(sorted(kinds.items())),
        "listed": [
            {
                "kind": reported.kind,
                **{name: _shown(getattr(reported.finding, name)) for name in LISTED},
            }
            for reported in audit.findings[:LISTED_MAX]
        ],
        "groups": [
            {
                "group": group.plan.group,
                "ranges": len(group.results),
                "entries": sum(result.entries for result in group.results),
                "messages": sum(result.messages for result in group.results),
                "bytes_read": sum(result.bytes_read for result in group.results),
                "replicas": [
                    {
                        "replica": replica.name,
                        "directory": replica.directory,
                        "first_index": replica.first_index,
                        "commit_index": replica.known_index,
                        "state": state,
                        "findings": sum(
                            one.finding.replica == replica.name for one in audit.findings
                        ),
                    }
                    for replica, state in zip(
                        group.plan.replicas, compare_states(group.plan), strict=True
                    )
                ],
            }
            for group in audit.groups
        ],
    }


def _shown(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value


def begin_results(directory: str) -> None:
    """Makes the directory. Removes the summary of an earlier audit, whose tables are replaced."""
    os.makedirs(directory, exist_ok=True)
    with suppress(FileNotFoundError):
        os.remove(f"{directory}/summary.json")


def write_tables(
    directory: str, findings: list[dict[str, Any]], ranges: list[dict[str, Any]]
) -> None:
    """Writes both Parquet files. Creates the directory if it is missing."""
    os.makedirs(directory, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(findings, FINDINGS), f"{directory}/findings.parquet")
    pq.write_table(pa.Table.from_pylist(ranges, RANGES), f"{directory}/ranges.parquet")


def write_summary(directory: str, summary: dict[str, Any]) -> None:
    path = f"{directory}/summary.json"
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=2)
        file.write("\n")
    os.replace(f"{path}.tmp", path)
