"""How empty voters begin a log: the first election of a group.

A majority of empty voters begins a log. But a voter whose disk was wiped is empty too. What it had
confirmed may then be on one disk only, of a voter that cannot be reached. So an empty node
remembers the first disk on which it met each member. Votes from another disk do not count, and that
disk gets no vote (``ReplicationEvidence.counts``). An empty node begins no log either once a leader
has told it that something is committed.

An empty node may have been wiped itself. So it votes for a candidate with a log only if nothing can
be lost by that:

- It has met a third member on another disk than before, so that one was wiped, and neither this
  node nor the candidate was: one is wiped at a time, and not before the last one is a voter again.
  A candidate that was wiped, or lost the end of its log, may lack what it had confirmed.
- All other voters have said that they are empty: no more is left of the log than the candidate has.
"""

from __future__ import annotations

from dledger.raft.configuration import NO_INCARNATION
from dledger.raft.raft_log import RaftLog
from dledger.raft.raft_state import RaftState
from dledger.raft.replication_evidence import ReplicationEvidence


class Bootstrap:
    """Of one node. A node that does not know its disk takes itself, and all others, for new."""

    def __init__(
        self, *, raft_state: RaftState, raft_log: RaftLog, evidence: ReplicationEvidence
    ) -> None:
        self._raft_state = raft_state
        self._raft_log = raft_log
        self._evidence = evidence
        self._met: dict[
            str, tuple[int, int]
        ] = {}  # by this process: disk, and the log's last index

    @property
    def applies(self) -> bool:
        """Whether this node is empty, and knows its disk."""
        return (
            self._raft_state.incarnation != NO_INCARNATION
            and self._raft_log.entry_cache.last_index < 0
        )

    def meet(self, member: str, incarnation: int, last_index: int) -> None:
        """A member says on which disk it is, and where its log ends."""
        if self.applies and incarnation != NO_INCARNATION:
            self._evidence.meet(member, incarnation)
            self._met[member] = (incarnation, last_index)

    @property
    def may_begin(self) -> bool:
        """Whether this node, which is empty, may begin a log with a member that is."""
        return not self._evidence.any_committed

    def votes_for(self, candidate: str, last_index: int) -> bool:
        """Whether this node, which is empty, may vote for a candidate whose log ends there."""
        if last_index < 0:
            return self.may_begin
        voters = self._raft_log.configurations.current.voters
        others = [each for each in voters if each not in (candidate, self._raft_state.node)]
        return any(map(self._was_replaced, others)) or all(map(self._is_empty, others))

    def _was_replaced(self, member: str) -> bool:
        met = self._met.get(member)
        return met is not None and self._evidence.replaced(member, met[0])

    def _is_empty(self, member: str) -> bool:
        met = self._met.get(member)
        return met is not None and met[1] < 0
