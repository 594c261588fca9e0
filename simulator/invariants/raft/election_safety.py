"""Election safety (Raft thesis, figure 3.2): at most one leader in a term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class OneLeaderPerTerm(Invariant):
    """Remembers who led each term."""

    step_parts = ChangedPart.RAFT_STATE

    def __init__(self) -> None:
        self._leaders: dict[int, str] = {}

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER:
            return
        leader = self._leaders.setdefault(core.term, host.name)
        if leader != host.name:
            raise Violation(f"{leader} and {host.name} both lead term {core.term}")
