"""The newest audit reports in the directory of the setting ``audit_dir``.

An audit runs outside the cluster. An operator puts its result there as a file::

    python -m spark audit SNAPSHOT --out DIR             DIR/summary.json
    dledger verify SNAPSHOT -o json > DIR/verify.json

Files that end with ``.json`` count, in the directory itself and in those directly below it. Several
of the newest are shown, because each may be of other broker groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from broker.limits import ADMIN
from store.quoting import shortened

_SHOWN = ("kind", "replica", "path", "position", "expected", "found", "advice")
"""The fields of a finding, as in :meth:`store.verify.findings.Finding.to_json`."""

_NO_REPORT = "it is not an audit report"


class AuditReport(NamedTuple):
    """The content of one report. With a ``problem`` it could not be read, and has no other
    content."""

    file: str
    """The path within the directory."""
    time_ms: int
    """The time at which the file was written."""
    findings: int = 0
    replicas: tuple[str, ...] = ()
    """The checked replicas, as ``group/node``."""
    listed: tuple[Mapping[str, Any], ...] = ()
    """The first findings."""
    problem: str = ""


def newest_reports(directory: str) -> list[AuditReport]:
    """The newest reports, newest first; empty if there is no directory yet. Raises ``OSError`` if
    the directory cannot be read."""
    try:
        found = sorted(_reports(Path(directory)), reverse=True)[: ADMIN.audit_reports_max]
    except FileNotFoundError:
        return []
    return [_report(directory, path, written_ns) for written_ns, path in found]


def _report(directory: str, path: Path, written_ns: int) -> AuditReport:
    name, time_ms = str(path.relative_to(directory)), written_ns // 1_000_000
    file = name if name.isprintable() else ascii(name)[1:-1]
    try:
        return _read(path)._replace(file=file, time_ms=time_ms)
    except (OSError, ValueError) as error:
        return AuditReport(file, time_ms, problem=shortened(f"{file} cannot be read: {error}"))


def _reports(directory: Path) -> Iterator[tuple[int, Path]]:
    """Each file with the time of its last change, in ns. Empty files are skipped: they are being
    written."""
    for path in islice(_json_files(directory, 1), ADMIN.audit_files_max):
        try:
            status = path.stat()
        except OSError:
            continue  # another process has removed it
        if status.st_size:
            yield status.st_mtime_ns, path


def _json_files(directory: Path, levels: int) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".json"):
                yield Path(entry.path)
            elif levels and entry.is_dir():
                yield from _json_files(Path(entry.path), levels - 1)


def _read(path: Path) -> AuditReport:
    """Raises ``ValueError`` for a file that is not a report."""
    with path.open("rb") as file:
        text = file.read(ADMIN.audit_bytes_max + 1)
    if len(text) > ADMIN.audit_bytes_max:
        raise ValueError(f"it has more than {ADMIN.audit_bytes_max:,} bytes")
    document = orjson.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("consistent"), bool):
        raise ValueError(_NO_REPORT)
    parts = _objects(document.get("groups", [document]))
    replicas = [each.get("replica") for part in parts for each in _objects(part.get("replicas"))]
    told = document.get("findings")
    listed = _objects(told if isinstance(told, list) else document.get("listed", []))
    count = len(listed) if isinstance(told, list) else told
    if type(count) is not int or not all(isinstance(each, str) for each in replicas):
        raise ValueError(_NO_REPORT)
    shown = [{name: each.get(name) for name in _SHOWN} for each in listed]
    first = tuple(shown[: ADMIN.audit_findings_listed_max])
    return AuditReport("", 0, count, tuple(map(str, replicas)), first)


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError(_NO_REPORT)
    return value
