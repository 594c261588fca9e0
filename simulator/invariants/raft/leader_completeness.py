"""Leader completeness (thesis, figure 3.2): a leader has every entry committed before its term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from simulator.invariants.raft.committed_entries import CommittedEntries

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class LeaderCompleteness(Invariant):
    """Looks at each leader once, when it begins."""

    step_parts = ChangedPart.RAFT_STATE

    def __init__(self, committed: CommittedEntries) -> None:
        self._committed = committed
        self._looked: dict[int, None] = {}

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER or core.term in self._looked:
            return
        self._looked[core.term] = None
        for index, (term, _) in self._committed.entries.items():
            if index < core.entry_cache.first_index or self._committed.terms[index] >= core.term:
                continue
            if core.entry_cache.term_at(index) != term:
                raise Violation(
                    f"leader {host.name} of term {core.term} lacks the committed entry {index} "
                    f"of term {term}"
                )
