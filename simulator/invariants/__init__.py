"""What must hold after every step of every run, one file each, with its source.

An invariant hears of what happens on each host and raises :class:`~simulator.host.Violation`.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.invariants.base import Invariant
from simulator.invariants.commit import CommitIndex
from simulator.invariants.completeness import LeaderCompleteness
from simulator.invariants.durability import DurableBeforeVisible
from simulator.invariants.election import OneLeaderPerTerm
from simulator.invariants.matching import LogMatching
from simulator.invariants.safety import StateMachineSafety
from simulator.invariants.terms import TermsAndVotes

__all__ = ["Invariant", "all_invariants"]


def all_invariants() -> Sequence[Invariant]:
    """A fresh set for one run."""
    safety = StateMachineSafety()
    return (
        OneLeaderPerTerm(),
        TermsAndVotes(),
        LogMatching(),
        CommitIndex(),
        safety,
        LeaderCompleteness(safety),
        DurableBeforeVisible(),
    )
