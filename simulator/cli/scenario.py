"""``scenario``: runs scenario files."""

from __future__ import annotations

from pathlib import Path

import click

from broker.cli.terminal.options import DIRECTORY, json_option
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.command_error import UsageError
from broker.system.bounded_file_read import read_bounded
from simulator.cli.replay import write_page
from simulator.cli.summary import as_json, one_line
from simulator.runs.scenario import Scenario, ScenarioError, parse_scenario
from simulator.view.trace_page import render_page

SCENARIO_BYTES_MAX = 16 << 20
"""The schedule of an hour has a few thousand lines."""


@click.command(
    cls=Command, examples="  python -m simulator scenario tests/simulator/scenarios/*.txt\n"
)
@click.argument("files", type=DIRECTORY, nargs=-1, required=True, metavar="FILE...")
@click.option("--trace", is_flag=True, help="Print one event a line.")
@click.option("--html", type=DIRECTORY, metavar="FILE", help="Draw the (last) run as a page.")
@json_option
def scenario(files: tuple[Path, ...], trace: bool, html: Path | None, output: Output) -> int:
    """Run scenario files. The exit code is 1 if one ends in another way than it must."""
    scenarios = [(path, read_scenario(path)) for path in files]
    wrong_ones = 0
    for path, each in scenarios:
        lines: list[str] = []
        outcome = each.run(lines.append if trace or html is not None else None)
        if trace:
            print("\n".join(lines))
        wrong = each.verdict(outcome)
        wrong_ones += wrong is not None
        if not output.document({"file": str(path), "wrong": wrong, **as_json(outcome)}):
            print(f"{path}: {'as it must be' if wrong is None else wrong}")
        if html is not None:
            write_page(html, render_page(f"{path}, {one_line(outcome)}", lines))
    return 1 if wrong_ones else 0


def read_scenario(path: Path) -> Scenario:
    """Reads a file. Raises :class:`UsageError`."""
    try:
        return parse_scenario(read_bounded(str(path), SCENARIO_BYTES_MAX).decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read {path}: {reason}") from error
    except ScenarioError as error:
        raise UsageError(f"{path}: {error}") from error
