"""A leader only appends: it never overwrites or drops entries of its log (thesis, figure 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class LeaderAppendOnly(Invariant):
    """Follows the end of each leader's log."""

    step_parts = ChangedPart.LOG | ChangedPart.RAFT_STATE

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, int, int, int]] = {}  # boot, term, last index, chain CRC

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None or core.role is not Role.LEADER:
            self._ends.pop(host.name, None)
            return
        log = core.entry_cache
        now = (host.boot, core.term, log.last_index, log.chain_crc)
        before = self._ends.get(host.name)
        self._ends[host.name] = now
        if before is None or before[:2] != now[:2] or before == now:
            return
        _, _, last_index, chain_crc = before
        held = log.entry(last_index)
        if log.last_index <= last_index or (held is not None and held.chain_crc != chain_crc):
            raise Violation(
                f"leader {host.name} of term {core.term} changes its log at or below {last_index}"
            )
