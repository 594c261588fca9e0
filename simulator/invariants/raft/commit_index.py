"""The commit index never falls and never passes the log; a leader counts only its own term.

Thesis 3.6.2 and figure 3.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class CommitIndex(Invariant):
    """Follows the commit index of each process."""

    step_parts = ChangedPart.COMMIT | ChangedPart.LOG | ChangedPart.RAFT_STATE

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[int, int, Role]] = {}

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        core, process = host.node.core, (host.name, host.boot)
        raft_state, commit_index = core.raft_state, core.raft_log.commit_index
        index, term, role = self._seen.get(process, (-1, -1, Role.FOLLOWER))
        if commit_index < index:
            raise Violation(f"{host.name}: the commit index falls from {index} to {commit_index}")
        if commit_index > core.entry_cache.last_index:
            raise Violation(
                f"{host.name} commits {commit_index}, its log ends at {core.entry_cache.last_index}"
            )
        leads = role is Role.LEADER and raft_state.role is Role.LEADER and term == raft_state.term
        if leads and commit_index > index:
            entry_term = core.entry_cache.term_at(commit_index)
            if entry_term != term:
                raise Violation(
                    f"leader {host.name} of term {term} commits entry {commit_index} "
                    f"of term {entry_term} by counting"
                )
        self._seen[process] = (commit_index, raft_state.term, raft_state.role)
