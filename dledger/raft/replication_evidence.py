"""How much of the committed log each member held durably, as leaders have told it.

A leader counts the confirmations of each member. Its heartbeats pass on how far they go, so one
heartbeat later every member knows what the others hold. Committed entries are never cut. So if the
log of a disk ends before that, the disk has lost entries: an old copy was put in its place. Such a
disk neither gets nor gives a vote. The next leader has it refilled, though it never heard the
confirmations itself.

A member on another disk has lost everything that its last disk held. If the log names no disk for a
member, only this evidence says which disk counts: the first one on which the member was met, or the
last one that a leader counted.

The evidence is saved about every second, and read again after a restart. With asynchronous flush a
power failure may take what was confirmed, so only the disks are known then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dledger.raft.configuration import NO_INCARNATION, Configuration


class MemberEvidence(NamedTuple):
    """Entries up to ``last_index`` are committed, and durable on the disk of that incarnation. With
    -1 it is only known that the member is on this disk."""

    node: str
    incarnation: int
    last_index: int


class ReplicationEvidence:
    """What one node knows of all members."""

    def __init__(self, known: Iterable[MemberEvidence] = (), *, kept: bool = True) -> None:
        """``kept`` is false with asynchronous flush: no last index is known then."""
        self.kept = kept
        self._known: dict[str, MemberEvidence] = {}
        self.learn(known)

    def learn(self, told: Iterable[MemberEvidence]) -> None:
        """A leader says so. If a member is on another disk now, the last report counts."""
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
        """A member says on which disk it is. Only its first report counts."""
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
        """Whether votes and confirmations of a member count on that disk. The log says which disk
        counts. It may name none yet, or this node may lack the entry. Then only the disk counts on
        which this node met the member: another disk has lost what the first one held, though it may
        hold a part of the log again. With two voters this rule is not needed: what one of them lost
        was committed only if the other holds it.
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
