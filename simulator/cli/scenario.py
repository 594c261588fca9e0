"""``scenario``: runs scenario files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from broker.system.bounded_file_read import read_bounded
from simulator.cli.options import Refusal
from simulator.cli.replay import write_page
from simulator.cli.summary import as_json, one_line
from simulator.runs.scenario import Scenario, ScenarioError, parse_scenario
from simulator.view.trace_page import render_page

SCENARIO_BYTES_MAX = 16 << 20
"""The schedule of an hour has a few thousand lines."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "scenario",
        help="run scenario files",
        epilog="example: python -m simulator scenario tests/simulator/scenarios/*.txt",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--trace", action="store_true", help="print one event a line")
    parser.add_argument("--html", type=Path, metavar="FILE", help="draw the (last) run as a page")
    parser.add_argument("--json", action="store_true", help="one JSON object a file")
    parser.set_defaults(command=scenario)


def scenario(asked: argparse.Namespace) -> int:
    """Returns the exit code: 1 if one ends in another way than it must."""
    scenarios = [(path, read_scenario(path)) for path in asked.files]
    wrong_ones = 0
    for path, each in scenarios:
        lines: list[str] = []
        outcome = each.run(lines.append if asked.trace or asked.html is not None else None)
        if asked.trace:
            print("\n".join(lines))
        wrong = each.verdict(outcome)
        wrong_ones += wrong is not None
        if asked.json:
            print(json.dumps({"file": str(path), "wrong": wrong, **as_json(outcome)}))
        else:
            print(f"{path}: {'as it must be' if wrong is None else wrong}")
        if asked.html is not None:
            write_page(asked.html, render_page(f"{path}, {one_line(outcome)}", lines))
    return 1 if wrong_ones else 0


def read_scenario(path: Path) -> Scenario:
    """Reads a file. Raises :class:`Refusal`."""
    try:
        return parse_scenario(read_bounded(str(path), SCENARIO_BYTES_MAX).decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Refusal(f"cannot read {path}: {reason}", code=2) from error
    except ScenarioError as error:
        raise Refusal(f"{path}: {error}", code=2) from error
