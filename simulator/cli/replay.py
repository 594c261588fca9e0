"""``replay``: one seed again, event by event, or as a page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import DIRECTORY
from broker.cli.terminal.program import Command
from broker.command_error import CommandError
from simulator.bugs import Bug, planted
from simulator.cli.options import RunOptions, bug_option, run_options
from simulator.cli.summary import one_line
from simulator.view.trace_page import render_page


@click.command(cls=Command, examples="  python -m simulator replay 17 --html run.html\n")
@click.argument("seed", type=WholeRange())
@click.option("--trace", is_flag=True, help="Print one event a line.")
@click.option(
    "--html",
    type=DIRECTORY,
    metavar="FILE",
    help="Draw the run as a page (and, in another, what is not linearizable).",
)
@bug_option
@run_options
def replay(seed: int, trace: bool, html: Path | None, bug: Bug | None, options: RunOptions) -> int:
    """Run one seed again."""
    lines: list[str] = []

    def show(line: str) -> None:
        if trace:
            print(line)
        if html is not None:
            lines.append(line)

    run = options.of(seed) if bug is None else bug.of(seed)
    with planted(bug):
        outcome = run.play(show if trace or html is not None else None)
    print(one_line(outcome))
    if html is not None:
        write_page(html, render_page(one_line(outcome), lines))
        if outcome.picture:
            write_page(html.with_suffix(".registers.html"), outcome.picture)
    return 0 if outcome.violation is None else 1


def write_page(path: Path, page: str) -> None:
    """Writes a page. Raises :class:`CommandError`."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    print(f"open {path} in a browser", file=sys.stderr)
