"""A node that cannot go on rightly stops, and says why."""

from __future__ import annotations

import pytest

from dledger.errors import InvariantError, SafetyProperty
from simulator.hosts.hash_state_machine import HashChainStateMachine
from simulator.worlds.registry import Run
from store.log.entry import Entry


def test_a_committed_entry_that_cannot_be_applied_stops_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = HashChainStateMachine.apply

    def refuse(machine: HashChainStateMachine, entry: Entry) -> None:
        if entry.index == 5:
            raise InvariantError(SafetyProperty.SAME_STATE, "entry 5 makes no sense")
        apply(machine, entry)

    monkeypatch.setattr(HashChainStateMachine, "apply", refuse)
    violation = Run(2, seconds=5.0).play().violation
    assert violation is not None
    assert (
        "stops by itself: InvariantError('state machine safety: entry 5 makes no sense')"
        in violation
    )
