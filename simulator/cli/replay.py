"""``replay``: one seed again, event by event, or as a page."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from simulator.bugs import planted
from simulator.cli.options import Refusal, add_run_options, bug, run_options
from simulator.cli.summary import one_line
from simulator.view.trace_page import render_page


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "replay",
        help="run one seed again",
        epilog="example: python -m simulator replay 17 --html run.html",
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("--trace", action="store_true", help="print one event a line")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="draw the run as a page (and, in another, what is not linearizable)",
    )
    parser.add_argument("--bug", type=bug, metavar="ID", help="with a planted bug, as it is run")
    add_run_options(parser)
    parser.set_defaults(command=replay)


def replay(asked: argparse.Namespace) -> int:
    """Returns the exit code: 1 if the seed breaks a promise."""
    options = run_options(asked)
    lines: list[str] = []

    def show(line: str) -> None:
        if asked.trace:
            print(line)
        if asked.html is not None:
            lines.append(line)

    with ExitStack() as stack:
        run = options.of(asked.seed)
        if asked.bug is not None:
            stack.enter_context(planted(asked.bug))
            run = asked.bug.of(asked.seed)
        outcome = run.play(show if asked.trace or asked.html is not None else None)
    print(one_line(outcome))
    if asked.html is not None:
        write_page(asked.html, render_page(one_line(outcome), lines))
        if outcome.picture:
            write_page(asked.html.with_suffix(".registers.html"), outcome.picture)
    return 0 if outcome.violation is None else 1


def write_page(path: Path, page: str) -> None:
    """Writes a page. Raises :class:`Refusal`."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Refusal(f"cannot write {path}: {error.strerror}") from error
    print(f"open {path} in a browser", file=sys.stderr)
