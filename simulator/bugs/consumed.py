"""Planted bugs H: how far groups are, and what they are given back."""

from __future__ import annotations

from typing import Any

from broker.commands import Command, CommitOffset
from broker.state import BrokerState
from simulator.bugs.plant import Bug, Patch
from simulator.worlds import BROKERS


def highest_offset_kept(patch: Patch) -> None:
    """What a group commits counts only where it is beyond what it committed before."""
    apply = BrokerState.apply

    def rising(state: BrokerState, command: Command) -> None:
        if isinstance(command, CommitOffset):
            before = state.offset(command.group, command.topic, command.queue_id)
            command = command._replace(offset=max(command.offset, before or 0))
        apply(state, command)

    patch.set(BrokerState, "apply", rising)


def _in_brokers(id_: str, plant: Any, says: str, seeds: int, *kinds: str) -> Bug:
    return Bug(id_, plant, says, seeds, seconds=8.0, world=BROKERS, kinds=kinds)


BUGS = (_in_brokers("H1x", highest_offset_kept, "is not linearizable", 5),)
