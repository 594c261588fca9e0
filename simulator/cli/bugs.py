"""``bugs``: takes out one defence at a time, and shows when the right check fires."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from simulator.bugs import BUGS, Bug, Finding, bug_by_id, look_for
from simulator.cli.options import bug, positive
from simulator.cli.progress import Progress

SAID_WIDTH = 100


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "bugs",
        help="planted bugs: seeds needed until the right check fires",
        epilog="example: python -m simulator bugs --id A5",
    )
    parser.add_argument("--id", type=bug, action="append", metavar="ID", help="only this one")
    parser.add_argument("--jobs", type=positive, default=1, metavar="J", help="processes")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document")
    form.add_argument("--markdown", action="store_true", help="the table of docs/planted-bugs.md")
    parser.set_defaults(command=bugs)


def bugs(asked: argparse.Namespace) -> int:
    """Returns the exit code: 1 if one is not found within its budget."""
    wanted: Sequence[Bug] = asked.id or BUGS
    progress = Progress(len(wanted), "bugs")
    began = time.perf_counter()
    findings: list[Finding] = []
    for finding in _found(wanted, asked.jobs):
        findings.append(finding)
        missed = sum(each.seed is None for each in findings)
        if not asked.json and not asked.markdown:
            progress.end()
            print(_line(finding), flush=True)
        progress.update(len(findings), f"{missed} not found")
    progress.end()
    missing = [finding.bug.id for finding in findings if finding.seed is None]
    if asked.json:
        print(json.dumps({"bugs": [_as_json(finding) for finding in findings], "missed": missing}))
    elif asked.markdown:
        print(table(findings))
    print(
        f"{len(findings) - len(missing)} of {len(findings)} planted bugs found "
        f"in {time.perf_counter() - began:.0f} s",
        file=sys.stderr,
    )
    if missing:
        print(f"not found within their seeds: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _found(wanted: Sequence[Bug], jobs: int) -> Iterator[Finding]:
    """By id, because a bug itself is not sent to another process."""
    if jobs == 1:
        yield from map(look_for, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        told = pool.map(_look_by_id, [bug.id for bug in wanted])
        for bug_, (seed, tried, violation, others) in zip(wanted, told, strict=True):
            yield Finding(bug_, seed, tried, violation, others)


def _look_by_id(id_: str) -> tuple[int | None, int, str, Sequence[str]]:
    found = bug_by_id(id_)
    assert found is not None  # noqa: S101 - the parent has it from the same table
    finding = look_for(found)
    return finding.seed, finding.tried, finding.violation, finding.others


def _line(finding: Finding) -> str:
    if finding.seed is None:
        said = f"; instead: {finding.others[0]}" if finding.others else ""
        return f"{finding.bug.id:<5} {finding.bug.name}: NOT FOUND in {finding.tried} seeds{said}"
    return (
        f"{finding.bug.id:<5} {finding.bug.name}: seed {finding.seed} of {finding.bug.seeds}: "
        f"{finding.violation[:SAID_WIDTH]}"
    )


def _as_json(finding: Finding) -> dict[str, object]:
    bug_ = finding.bug
    return {
        "id": bug_.id,
        "name": bug_.name,
        "takes_out": bug_.takes_out,
        "check_says": bug_.says,
        "seeds_allowed": bug_.seeds,
        "seed": finding.seed,
        "seeds_tried": finding.tried,
        "violation": finding.violation,
        "other_violations": list(finding.others),
    }


def table(findings: Sequence[Finding]) -> str:
    """A Markdown table: a bug a line, with the seed that found it."""
    rows = ["| id | what is taken out | the check says | seeds |", "| --- | --- | --- | --- |"]
    for finding in findings:
        bug_ = finding.bug
        says = bug_.says.replace(" | ", " or ")
        needed = "not found" if finding.seed is None else str(finding.seed)
        rows.append(f"| {bug_.id} | {bug_.takes_out} | {says} | {needed} of {bug_.seeds} |")
    return "\n".join(rows)
