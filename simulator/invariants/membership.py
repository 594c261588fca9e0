"""Who is a member is what the log says (Raft thesis 4.1; bug B9), on every node, and a leader that
the log has removed does not go on leading (4.2.2; bug A8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import TYPE_CHECKING

from dledger.configuration import Configuration
from dledger.standing import Role
from simulator.invariants.base import Invariant, Part
from simulator.violation import Violation
from store.entry import Entry, EntryKind

if TYPE_CHECKING:
    from simulator.host import Host


def is_majority(configuration: Configuration, names: Collection[str]) -> bool:
    """Of its voters; of the old and of the new ones, while they change."""
    return all(
        2 * sum(voter in names for voter in voters) > len(voters)
        for voters in configuration.quorums
    )


class MembersOfTheLog(Invariant):
    """Remembers every configuration that was applied, by the index of its entry."""

    step_parts = Part.COMMIT | Part.LOG | Part.STANDING

    def __init__(self) -> None:
        self._indexes: list[int] = []
        self._found: list[Configuration] = []
        self.known: dict[str, Configuration] = {}
        """The newest in the log of each host, committed or not, also of one that has ended."""

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if entry.kind is EntryKind.CONFIGURATION and entry.index > max(self._indexes, default=-1):
            self._indexes.append(entry.index)
            self._found.append(Configuration.unpack(entry.body))
        if not self._indexes or host.node is None:
            return
        place = bisect_right(self._indexes, entry.index) - 1
        if place < 0:
            return
        taken, said = host.node.core.configurations.at(entry.index), self._found[place]
        if taken != said:
            raise Violation(
                f"{host.name} takes {', '.join(taken.voters)} for the voters after entry "
                f"{entry.index}; entry {self._indexes[place]} of its log names "
                f"{', '.join(said.voters)}, or other learners or disks"
            )

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        core = host.node.core if host.node is not None else None
        if core is None:
            return
        self.known[host.name] = core.configuration
        if core.role is not Role.LEADER:
            return
        removed = not core.configuration.votes(core.node)
        if removed and core.commit_index >= max(core.configurations.index, core.term_first_index):
            raise Violation(f"{host.name} leads though it is committed that it is no voter")
