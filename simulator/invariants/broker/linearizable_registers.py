"""Consumer offsets and topics are linearizable (docs/safety.md, invariants over the history)."""

from __future__ import annotations

from simulator.engine.violation import Violation
from simulator.linearizability.checker import check_registers
from simulator.linearizability.picture import picture
from simulator.workload.registers import RegisterHistory


class NotLinearizable(Violation):
    """Operations that cannot have happened one at a time; ``page`` is a picture of them."""

    def __init__(self, text: str, page: str) -> None:
        super().__init__(text)
        self.page = page


def check_linearizable(history: RegisterHistory) -> int:
    """Raises :class:`NotLinearizable`; how many registers could not be decided in time."""
    undecided = 0
    for search in check_registers([*history.operations, *history.unknown()]):
        if not search.linearizable:
            raise NotLinearizable(
                f"{search.register} is not linearizable: {search.first_misfit} "
                f"fits nowhere among {len(search.operations)} operations",
                picture(search),
            )
        undecided += not search.decided
    return undecided
