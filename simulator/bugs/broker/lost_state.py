"""A part of the broker's state that a checkpoint lacks, or that a command does not change."""

from __future__ import annotations

from collections.abc import Callable

from broker.state.broker_state import BrokerState
from broker.state.commands import Command
from simulator.bugs.planted_bug import Original, Patch


def not_in_checkpoints(patch: Patch, field: str, empty: Callable[[], object]) -> None:
    """``empty`` makes what a checkpoint has in the place of the field."""

    @patch.around(BrokerState, "to_bytes")
    def without(pack: Original[bytes], state: BrokerState) -> bytes:
        kept = getattr(state, field)
        setattr(state, field, empty())
        try:
            return pack(state)
        finally:
            setattr(state, field, kept)


def not_applied(patch: Patch, kind: type[Command]) -> None:
    """Commands of that kind in the log change nothing."""

    @patch.around(BrokerState, "apply")
    def deaf(apply: Original[None], state: BrokerState, command: Command) -> None:
        if not isinstance(command, kind):
            apply(state, command)
