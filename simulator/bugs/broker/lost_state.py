"""A part of the broker's state that a checkpoint lacks."""

from __future__ import annotations

from collections.abc import Callable

from broker.state.broker_state import BrokerState
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
