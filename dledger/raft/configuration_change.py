"""Changes of the members, as a leader makes them (Raft thesis 4.3).

The leader appends the joint configuration. Once that is committed, it appends the new one. A leader
that takes over in between goes on from there. A change begins only after an entry of the leader's
own term is committed: without this rule the changes of two leaders can have disjoint quorums (bug
B8). It also waits for the change before. A joint configuration that is not committed in time is
cancelled.

A member that is on another disk than the noted one, or holds less than it confirmed, is refilled.
It gets the log like a learner. Its disk is noted once it holds everything that it can have
confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dledger.config import RaftConfig
from dledger.errors import ChangeRefusedError
from dledger.raft.configuration import (
    LOST_INCARNATION,
    MEMBERS_MAX,
    NO_INCARNATION,
    Configuration,
    MemberAddress,
)
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.quorum import majority
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.replication import Replicator
from store.log.entry import EntryKind


class ConfigurationChanger:
    """Of one leadership."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        first_index: int,
        raft_log: RaftLog,
        add: Callable[[EntryKind, bytes], int],
        replicator: Replicator,
        quorum_tracker: QuorumTracker,
        leadership_transfer: LeadershipTransfer,
        connected: Mapping[str, bool],
        config: RaftConfig,
        now: float,
    ) -> None:
        """``add`` appends an entry of the leader's own, whose index it returns; ``first_index`` is
        the no-op of the term."""
        self._node = node
        self._incarnation = incarnation
        self._first_index = first_index
        self._raft_log = raft_log
        self._add = add
        self._replicator = replicator
        self._quorum_tracker = quorum_tracker
        self._handover = leadership_transfer
        self._connected = connected
        self._config = config
        self._note_at = now + 2 * config.election_seconds
        self._changed_at = now

    # --- what an operator wants

    def add_learner(self, node: str, address: MemberAddress, now: float) -> int:
        """From now on ``node`` gets the log. Returns the index of the entry that says so.

        Raises :class:`~dledger.errors.ChangeRefusedError`, as the three below.
        """
        found = self.changeable()
        if found.votes(node):
            raise ChangeRefusedError(f"{node} is a voter already")
        if len({*found.members, node}) > MEMBERS_MAX:
            raise ChangeRefusedError(f"a group has at most {MEMBERS_MAX} members")
        # Nothing is known of a node that was removed a moment ago: it may be on another disk.
        self._replicator.set_peers(self._quorum_tracker.peers(), self._connected, now)
        return self._change(found.with_learner(node, address), now)

    def promote(self, node: str, now: float) -> int:
        """Makes a voter of a learner that has caught up."""
        found = self.changeable()
        self._check_ready(found, node)
        return self._change_voters((*found.voters, node), now)

    def remove(self, node: str, now: float) -> int:
        """Removes a member, which may be this leader."""
        found = self.changeable()
        if node in found.learners:
            return self._change(found.without_learner(node), now)
        if node not in found.voters:
            raise ChangeRefusedError(f"{node} is not a member")
        voters = [name for name in found.voters if name != node]
        if not voters:
            raise ChangeRefusedError(f"{node} is the only voter")
        return self._change_voters(voters, now)

    def replace(self, voters: Sequence[str], now: float) -> int:
        """Makes these the voters. Any number may come and go in one step."""
        found = self.changeable()
        if not voters:
            raise ChangeRefusedError("a group has one voter at least")
        for node in voters:
            if node not in found.voters:
                self._check_ready(found, node)
        return self._change_voters(voters, now)

    def _check_ready(self, found: Configuration, node: str) -> None:
        """Whether it may become a voter. Raises :class:`~dledger.errors.ChangeRefusedError`."""
        if node not in found.learners:
            raise ChangeRefusedError(f"{node} is no learner")
        lag = self._raft_log.commit_index - self._replicator.peers[node].match_index
        if not self._quorum_tracker.is_intact(node):
            raise ChangeRefusedError(f"{node} has damaged entries: they have to be repaired first")
        if not self._quorum_tracker.keeps_up(node):
            raise ChangeRefusedError(f"{node} has to catch up first: it lacks {lag} entries")

    def changeable(self) -> Configuration:
        """The members, if they, or the leader, may be changed now. Raises
        :class:`~dledger.errors.ChangeRefusedError`."""
        configurations = self._raft_log.configurations
        if self._handover.target is not None:
            raise ChangeRefusedError(
                f"the leadership is being transferred to {self._handover.target}"
            )
        if self._raft_log.commit_index < self._first_index:
            raise ChangeRefusedError("the new leader has not committed an entry of its own yet")
        if configurations.index > self._raft_log.commit_index or configurations.current.is_joint:
            raise ChangeRefusedError("another change of the members is under way")
        return configurations.current

    def _change_voters(self, voters: Sequence[str], now: float) -> int:
        """Refuses voters of which no majority could elect a leader: without this leader there would
        be no way back."""
        unready = [voter for voter in voters if not self._quorum_tracker.keeps_up(voter)]
        if len(voters) - len(unready) < majority(len(voters)):
            raise ChangeRefusedError(
                f"{', '.join(unready)} cannot be reached, has to catch up first, is refilled, "
                "or has damaged entries"
            )
        return self._change(self._quorum_tracker.configuration.with_voters(voters), now)

    def _change(self, configuration: Configuration, now: float) -> int:
        index = self._add(EntryKind.CONFIGURATION, configuration.pack())
        self._changed_at = now
        # A member that leaves learns it by this very entry. It is forgotten once the next one is
        # committed.
        leaving = [peer for peer in self._replicator.peers if peer not in configuration.members]
        wanted = [*self._quorum_tracker.peers(), *leaving]
        self._replicator.set_peers(wanted, self._connected, now)
        self._replicator.replicate_all(self._raft_log.commit_index, now)
        return index

    # --- what follows from what is committed

    def advance_change(self, now: float) -> bool:
        """Goes on with the change that the present configuration is part of. Returns whether this
        leader is a member."""
        configurations, commit_index = self._raft_log.configurations, self._raft_log.commit_index
        if commit_index < self._first_index:
            return True
        found = configurations.current
        if configurations.index > commit_index:
            if found.is_joint and now - self._changed_at >= self._config.change_seconds:
                self._change(found.cancelled(), now)
            return True
        if found.is_joint:
            self._change(found.completed(), now)
            return True
        replicator, staying = self._replicator, self._quorum_tracker.peers()
        if len(replicator.peers) != len(staying):
            self._part(staying, now)
        if not found.votes(self._node):
            return False
        if self._handover.target is not None:
            return True  # nothing is added that the next leader may lack
        noted = self._incarnations_to_note(found, staying, now)
        if noted:
            self._change(found.with_incarnations(noted), now)
            for peer in noted:
                if peer != self._node and noted[peer] != LOST_INCARNATION:
                    replicator.peers[peer].lost = False
        return True

    def _part(self, members: Sequence[str], now: float) -> None:
        """Removed members get the log until they know that they were removed: else they would go on
        asking for votes. This does not go on for long, and no snapshot is sent for it."""
        replicator, log, index = (
            self._replicator,
            self._raft_log.entry_cache,
            self._raft_log.configurations.index,
        )
        staying = [*members]
        leaving = [peer for peer in replicator.peers if peer not in staying]
        if any(replicator.peers[peer].match_index >= index for peer in leaving):
            replicator.ask_all(self._raft_log.commit_index)  # tells them that it is committed
        for peer in leaving if now - self._changed_at < self._config.change_seconds else ():
            progress = replicator.peers[peer]
            here = log.term_at(progress.next_index - 1) is not None
            if progress.connected and progress.sent_commit < index and here:
                staying.append(peer)
        replicator.set_peers(staying, self._connected, now)

    def _incarnations_to_note(
        self, found: Configuration, peers: Sequence[str], now: float
    ) -> dict[str, int]:
        noted: dict[str, int] = {}
        if not found.incarnations.get(self._node) and self._incarnation:
            noted[self._node] = self._incarnation
        waits = False
        for peer in peers:
            progress = self._replicator.peers[peer]
            before = found.incarnations.get(peer, NO_INCARNATION)
            if progress.lost and before != LOST_INCARNATION:
                noted[peer] = LOST_INCARNATION
            elif not progress.incarnation:
                waits = waits or self._incarnation != NO_INCARNATION
            elif (before == NO_INCARNATION and self._quorum_tracker.counts(peer)) or (
                (before != progress.incarnation or progress.lost)
                and progress.match_index >= progress.needed_index
                and self._quorum_tracker.is_intact(peer)
            ):
                noted[peer] = progress.incarnation
        if waits and now < self._note_at and LOST_INCARNATION not in noted.values():
            return {}  # in a new group, one entry for all of them
        return noted
