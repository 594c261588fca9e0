"""The parser, and the common part of all commands: errors in one line, and quiet nodes."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from simulator.cli import bugs, replay, run, scenario, shrink
from simulator.cli.options import Refusal


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Runs whole clusters of the shipped code under virtual time.",
        epilog="example: python -m simulator run --seeds 1-100 --nodes 5",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (run, replay, shrink, scenario, bugs):
        command.add(commands)
    asked = parser.parse_args(arguments)
    # Nodes log the injected faults; the trace has them in order.
    for name in ("dledger", "broker", "store"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        code: int = asked.command(asked)
    except Refusal as refusal:
        print(f"simulator: {refusal}", file=sys.stderr)
        return refusal.code
    return code
