"""What the majorities of a group hold, have answered, and are heard of, as its leader knows it.

A member counts only on the disk that the configuration notes for it (*incarnation*), and only
while it holds what it confirmed. In a joint configuration both majorities are needed (thesis 4.3).
"""

from __future__ import annotations

from dledger.config import RaftConfig
from dledger.raft.configuration import Configuration
from dledger.raft.health import MemberHealth
from dledger.raft.quorum import joint_quorum_index
from dledger.raft.raft_log import RaftLog
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import MemberEvidence, ReplicationEvidence


class QuorumTracker:
    """Of one leadership."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        raft_log: RaftLog,
        replicator: Replicator,
        health: MemberHealth,
        evidence: ReplicationEvidence,
        config: RaftConfig,
    ) -> None:
        self._node = node
        self._incarnation = incarnation
        self._raft_log = raft_log
        self._replicator = replicator
        self._health = health
        self._evidence = evidence
        self._promote_lag_entries = config.promote_lag_entries

    @property
    def configuration(self) -> Configuration:
        """What is in effect."""
        return self._raft_log.configurations.current

    def peers(self) -> list[str]:
        """All members but the leader."""
        return [name for name in self.configuration.members if name != self._node]

    def counts(self, peer: str) -> bool:
        """Whether what the peer confirms counts."""
        progress = self._replicator.peers[peer]
        if progress.lost:
            return False
        return progress.incarnation is None or self._evidence.counts(
            self._raft_log.configurations.current, peer, progress.incarnation
        )

    def is_intact(self, member: str) -> bool:
        """Whether nothing of its log is damaged, as far as it has told."""
        return self._health.is_intact(member)

    def quorum_index(self) -> int:
        """The highest index that a majority holds durably, where that is above the commit index;
        otherwise any index below. The leader's own disk is one of them."""
        commit_index = self._raft_log.commit_index
        held = {
            peer: progress.match_index
            for peer, progress in self._replicator.peers.items()
            if progress.match_index > commit_index and self.counts(peer)
        }
        held[self._node] = self._raft_log.durable_index
        return joint_quorum_index(self.configuration.quorums, held)

    def evidence(self) -> list[MemberEvidence]:
        """What every member that counts holds of what is committed."""
        commit_index = self._raft_log.commit_index
        own = min(self._raft_log.durable_index, commit_index)
        found = [MemberEvidence(self._node, self._incarnation, own)]
        for peer, progress in self._replicator.peers.items():
            if progress.incarnation and self.counts(peer):
                index = min(progress.match_index, commit_index)
                found.append(MemberEvidence(peer, progress.incarnation, index))
        return [holding for holding in found if holding.incarnation and holding.last_index >= 0]

    def heard_since(self, since: float) -> bool:
        """Whether a majority was heard since then."""
        heard = {
            peer: 1
            for peer, progress in self._replicator.peers.items()
            if progress.heard_at >= since and self.counts(peer)
        }
        heard[self._node] = 1
        found, quorums = self.configuration, self.configuration.quorums
        if found.is_joint and self._raft_log.configurations.index > self._raft_log.commit_index:
            # Without the new voters nothing commits, but the old ones suffice to call it off.
            quorums = (found.old_voters,)
        return joint_quorum_index(quorums, heard) == 1

    def confirmed_round(self) -> int:
        """The last round of heartbeats that a majority answered."""
        rounds = {
            peer: progress.round
            for peer, progress in self._replicator.peers.items()
            if self.counts(peer)
        }
        rounds[self._node] = self._replicator.round
        return joint_quorum_index(self.configuration.quorums, rounds)

    def keeps_up(self, voter: str) -> bool:
        """Whether it can carry its part at once: reached, on its own disk, whole, and up to date.

        Up to date is only who holds the entry that says who the members are: one that was put on
        another disk learns from it that it counts again, and votes for nobody until then.
        """
        if not self.is_intact(voter):
            return False
        if voter == self._node:
            return True
        progress = self._replicator.peers[voter]
        lag = self._raft_log.commit_index - progress.match_index
        return (
            progress.connected
            and progress.match_index >= 0
            and lag <= self._promote_lag_entries
            and progress.match_index >= self._raft_log.configurations.index
            and self.counts(voter)
        )
