"""Bugs that the simulator once found in this project, planted again: see ``docs/bugs-found.md``."""

from __future__ import annotations

from broker.machine import Checkpointing
from simulator.bugs.plant import Bug, Patch
from simulator.worlds import BROKERS


def full_disk_in_a_derived_file_stops_a_node(patch: Patch) -> None:
    """A disk that is full as rows of queues and keys are written is taken for a broken one."""

    def flush(work: Checkpointing) -> None:
        for each in work._flushes:
            each.run()

    patch.set(Checkpointing, "flush", flush)


BUGS = (
    Bug(
        "E1x",
        full_disk_in_a_derived_file_stops_a_node,
        "No space left",
        20,
        seconds=8.0,
        kinds=("full disk",),
        world=BROKERS,
    ),
)
