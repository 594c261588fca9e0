"""The log says who is a member, on every node (Raft thesis 4.1; bug B9).

A leader that the log has removed does not go on leading (4.2.2; bug A8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from simulator.invariants.raft.configurations_seen import Members, SeenConfigurations
from store.log.entry import Entry

if TYPE_CHECKING:
    from dledger.raft.configuration import Configuration
    from simulator.hosts.host import Host


class ConfigurationFollowsLog(Invariant):
    """Compares each node's members with those of its log."""

    step_parts = ChangedPart.COMMIT | ChangedPart.LOG | ChangedPart.RAFT_STATE

    def __init__(self, seen: SeenConfigurations) -> None:
        self._seen = seen
        self.known: dict[str, Members] = {}
        """The newest in the log of each host, committed or not, also of one that has ended."""

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if host.node is not None:
            at, said = self._seen.committed_at(entry.index)
            taken = host.node.core.configurations.at(entry.index)
            if at >= 0:
                _compare(host, taken, said, f"after entry {entry.index}; entry {at}")

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None:
            return
        at, said = self._seen.of(host)
        self.known[host.name] = said
        if at >= 0:
            _compare(
                host,
                core.configuration,
                said,
                f"after entry {core.entry_cache.last_index}; entry {at}",
            )
        if core.role is not Role.LEADER:
            return
        removed = host.name not in (*said.voters, *said.old_voters)
        if removed and core.commit_index >= max(at, core.term_first_index):
            raise Violation(f"{host.name} leads though it is committed that it is no voter")


def _compare(host: Host, taken: Configuration, said: Members, where: str) -> None:
    found = Members(taken.voters, taken.old_voters, taken.learners, taken.incarnations)
    if found != said:
        raise Violation(
            f"{host.name} takes {', '.join(found.voters)} for the voters {where} of its log names "
            f"{', '.join(said.voters)}, or other old voters, learners or disks"
        )
