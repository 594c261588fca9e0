"""The simulator's command line: its commands, and quiet nodes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from broker.cli.terminal.program import Group, run_program
from simulator.cli.bugs import bugs
from simulator.cli.replay import replay
from simulator.cli.run import run
from simulator.cli.scenario import scenario
from simulator.cli.shrink import shrink

simulator = Group(
    "simulator",
    help="Runs whole clusters of the shipped code under virtual time.",
    commands=[run, replay, shrink, scenario, bugs],
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    # Nodes log the injected faults; the trace has them in order.
    for name in ("dledger", "broker", "store"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    given = sys.argv[1:] if arguments is None else arguments
    return run_program(simulator, "python -m simulator", given)
