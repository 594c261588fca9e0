"""``bugs``: takes out one defence at a time, and shows when the right check fires."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click

from broker.cli.terminal.numbers import COUNT
from broker.cli.terminal.options import json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from simulator.bugs import BUGS, Bug, Finding, look_for
from simulator.cli.options import RunOptions, bug
from simulator.runs.profiles import PROFILES

PROFILE_SEEDS = 200
"""As docs/defences.md counts them."""

SAID_WIDTH = 100


@click.command(
    cls=Command,
    examples="  python -m simulator bugs --id A5\n"
    "  python -m simulator bugs --id A5 --profile default     by runs that know nothing of it\n",
)
@click.option("--id", "ids", type=bug, multiple=True, metavar="ID", help="Only this one, or these.")
@click.option("--jobs", type=COUNT, default=1, metavar="J", help="Processes.")
@click.option(
    "--profile",
    type=click.Choice(tuple(PROFILES)),
    metavar="NAME",
    help="Runs of this profile, each to the first check that fires, in the place of the bug's own.",
)
@click.option(
    "--seeds",
    type=COUNT,
    metavar="N",
    help=f"How many to try (default: what the bug may take; {PROFILE_SEEDS} of a profile).",
)
@click.option("--markdown", is_flag=True, help="The table of docs/planted-bugs.md.")
@json_option
def bugs(
    *,
    ids: tuple[Bug, ...],
    jobs: int,
    profile: str | None,
    seeds: int | None,
    markdown: bool,
    output: Output,
) -> int:
    """Planted bugs: seeds needed until the right check fires."""
    wanted: Sequence[Bug] = ids or BUGS
    look = partial(look_for, seeds=seeds)
    if profile is not None:
        found = PROFILES[profile]
        options = RunOptions(None, found.minutes, found)
        look = partial(look_for, of=options.of, seeds=seeds or PROFILE_SEEDS)
    progress = Progress("bugs", total=len(wanted))
    began = time.perf_counter()
    findings: list[Finding] = []
    for finding in _found(look, wanted, jobs):
        findings.append(finding)
        missed = sum(each.seed is None for each in findings)
        if output is Output.TABLE and not markdown:
            progress.end()
            print(_line(finding), flush=True)
        progress.add(said=f"{missed} not found")
    progress.end()
    missing = [finding.bug.id for finding in findings if finding.seed is None]
    if markdown:
        print(table(findings))
    else:
        output.document({"bugs": [_as_json(finding) for finding in findings], "missed": missing})
    print(
        f"{len(findings) - len(missing)} of {len(findings)} planted bugs found "
        f"in {time.perf_counter() - began:.0f} s",
        file=sys.stderr,
    )
    if missing:
        print(f"not found within their seeds: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _found(look: Callable[[Bug], Finding], wanted: Sequence[Bug], jobs: int) -> Iterator[Finding]:
    if jobs == 1:
        yield from map(look, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(look, wanted)


def _line(finding: Finding) -> str:
    if finding.seed is None:
        said = f"; instead: {finding.others[0]}" if finding.others else ""
        return f"{finding.bug.id:<5} {finding.bug.name}: NOT FOUND in {finding.tried} seeds{said}"
    return (
        f"{finding.bug.id:<5} {finding.bug.name}: seed {finding.seed} of {finding.seeds}: "
        f"{finding.violation[:SAID_WIDTH]}"
    )


def _as_json(finding: Finding) -> dict[str, object]:
    bug_ = finding.bug
    return {
        "id": bug_.id,
        "name": bug_.name,
        "takes_out": bug_.takes_out,
        "check_says": bug_.says,
        "seeds_allowed": finding.seeds,
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
        rows.append(f"| {bug_.id} | {bug_.takes_out} | {says} | {needed} of {finding.seeds} |")
    return "\n".join(rows)
