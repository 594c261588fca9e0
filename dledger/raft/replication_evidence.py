"""What each member held durably of what is committed, as leaders have told it.

A leader counts a member's confirmations; its heartbeats pass on how far they go, so that every
member knows, a heartbeat's time later, what every other one holds. Entries that are committed are
never cut, so a disk whose log ends before that has lost some of them: an old copy was put in its
place. It neither gets nor gives a vote, and the next leader has it refilled, though it never heard
its confirmations itself.

A member that is on another disk than it was has lost all that the last one held. Where the log
names no disk of a member, this alone says which one counts: the one on which it was met, or which a
leader counted last.

It is saved now and then, and what was saved last is known again after a restart. With asynchronous
flush nothing is told, because there a power failure may take what was confirmed: only the disks are
known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dledger.raft.configuration import NO_INCARNATION, Configuration


class MemberEvidence(NamedTuple):
    """All up to ``last_index`` is committed, and durable on the disk of that incarnation; of -1 no
    more is known than that the member is on this disk."""

    node: str
    incarnation: int
    last_index: int


class ReplicationEvidence:
    """What one node knows of all members."""

    def __init__(self, known: Iterable[MemberEvidence] = (), *, kept: bool = True) -> None:
        """``kept`` is false where a confirmation is no promise: no last index is known then."""
        self.kept = kept
        self._known: dict[str, MemberEvidence] = {}
        self.learn(known)

    def learn(self, told: Iterable[MemberEvidence]) -> None:
        """A leader says so. Of a member that is on another disk now, the last word counts."""
        for each in told:
            holding = each if self.kept else each._replace(last_index=-1)
            before = self._known.get(holding.node)
            if (
                before is None
                or before.incarnation != holding.incarnation
                or before.last_index < holding.last_index
            ):
                self._known[holding.node] = holding

    def meet(self, node: str, incarnation: int) -> None:
        """A member says on which disk it is. Of itself its first word counts."""
        self._known.setdefault(node, MemberEvidence(node, incarnation, -1))

    def copy(self) -> ReplicationEvidence:
        """What is known now, whatever is learned later."""
        return ReplicationEvidence(self._known.values(), kept=self.kept)

    def known(self) -> list[MemberEvidence]:
        """All that is known, in the order of names."""
        return [self._known[node] for node in sorted(self._known)]

    @property
    def any_committed(self) -> bool:
        """Whether a leader told of anything that is committed."""
        return any(holding.last_index >= 0 for holding in self._known.values())

    def replaced(self, node: str, incarnation: int) -> bool:
        """Whether the member is known on another disk."""
        known = self._known.get(node)
        return known is not None and known.incarnation != incarnation

    def counts(self, found: Configuration, node: str, incarnation: int) -> bool:
        """Whether votes and confirmations of a member count on that disk.

        The log says which disk counts. It may name none yet, or this node may lack the entry. Then
        only the disk counts on which this node knows the member: another one has lost what the
        first one held, and may hold a part of the log again. Two voters need no such rule: what one
        of them lost is committed only if the other one holds it.
        """
        noted = found.incarnations.get(node, NO_INCARNATION)
        if noted != NO_INCARNATION:
            return noted == incarnation
        if incarnation == NO_INCARNATION or not self.replaced(node, incarnation):
            return True
        return len({*found.voters, *found.old_voters}) == 2

    def lacks(self, node: str, incarnation: int, last_index: int) -> bool:
        """Whether a log that ends there has lost committed entries which that disk held."""
        known = self._known.get(node)
        return (
            known is not None and known.incarnation == incarnation and last_index < known.last_index
        )
