"""The Raft protocol of one node, without clock, socket, file or thread.

Events go in: a message, the time, a proposal, "this write is durable". After each event the driver
takes one bundle of :class:`~dledger.raft.ready.Ready` and compares ``commit_index``. Nothing in
here waits, and nothing is random but through the generator that was handed in, so a run is a
function of its events.

Theory of operation, by section of Ongaro's thesis:

- Elections (3.4) start after a randomised timeout, with a pre-vote (9.6) that changes no term. A
  node that hears a leader refuses all others its vote (stickiness, 4.2.3); a leader that hears no
  majority for an election timeout steps down (check-quorum, 6.2). When the link to the leader
  breaks, or a leader steps down, the timeout is shortened: pre-vote and stickiness make a false
  alarm harmless. ``raft/election.py`` asks and grants, ``raft/raft_state.py`` holds term, vote and
  role.
- A vote leaves only after it is durable, the candidate's own included (3.8); see ``Write.then``.
- Replication (3.5) is in ``raft/replication.py`` for the leader, in ``raft/follower.py`` and
  ``raft/raft_log.py`` for the follower. A follower confirms only what is durable *and* known to
  match the leader's log.
- A leader commits only entries of its own term by counting (3.6.2), so it begins with a no-op:
  ``raft/leader.py``. Beside it are its changes of the members (``raft/configuration_change.py``),
  the hand-over of the leadership (``raft/leadership_transfer.py``) and the reads that it confirms
  (``raft/read_index.py``).
- The log says who votes (4.3, ``raft/configuration.py``). A node may lack the entry that makes a
  sender a member, and must still vote for it and follow it. But a *stranger*, a sender that is no
  member by any configuration from the commit index on, may be anybody. It is heard as candidate or
  leader only if no member has led for long (``raft/raft_state.py``). It gets a vote only if its log
  is longer. What it says is committed is believed only once it has shown that it knows the log
  (``raft/raft_log.py``). It keeps no member from an election, and its other messages are ignored.
- No message of a peer ends a node. A message that cannot be right raises :class:`PeerError` and
  changes nothing. A term may rise only so far at a time (``raft/term_bound.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dledger.config import RaftConfig
from dledger.errors import InvariantError, PeerError, SafetyProperty
from dledger.raft.configuration import NO_INCARNATION, Configurations, MemberAddress
from dledger.raft.election import Elections
from dledger.raft.entry_cache import EntryCache
from dledger.raft.follower import Follower
from dledger.raft.health import HEALTHY, MemberHealth, OwnHealth
from dledger.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    RaftMessage,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.raft_log import RaftLog
from dledger.raft.raft_state import NOBODY, Chance, RaftState, Role
from dledger.raft.ready import Ready, ReadyBuilder
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import MemberEvidence, ReplicationEvidence
from dledger.raft.view import RaftView
from store.log.entry import Entry


class Raft(RaftView):
    """One node's share of the protocol."""

    def __init__(
        self,
        *,
        node: str,
        configurations: Configurations,
        log: EntryCache,
        segment_size: int,
        rng: Chance,
        now: float,
        config: RaftConfig,
        term: int = 0,
        vote: str = NOBODY,
        commit_index: int = -1,
        incarnation: int = NO_INCARNATION,
        sync_flush: bool = True,
        evidence: Iterable[MemberEvidence] = (),
        health: OwnHealth = HEALTHY,
    ) -> None:
        """All of ``log`` must be durable, and is committed up to ``commit_index`` at least.
        ``sync_flush``: whether a write that is reported as done survives a power failure.
        ``evidence`` is the saved :meth:`known_evidence`. ``health`` is this node's until
        :meth:`health_changed`. ``configurations`` are those of the log, committed or not; without a
        voter the node waits to be added to a group.
        """
        if term < log.last_term:
            # The term reaches the disk before its entries, so a part of the disk is older.
            raise InvariantError(
                SafetyProperty.ONE_LEADER,
                f"{node}: its term {term} is below {log.last_term} of its log",
            )
        self._entry_cache = log
        self._ready_builder = ReadyBuilder()
        self._read_asked: tuple[str, int] | None = None  # of whom, by what number
        self._raft_log = RaftLog(
            node=node,
            log=log,
            commit_index=commit_index,
            configurations=configurations,
            segment_size=segment_size,
            ready_builder=self._ready_builder,
            incarnation=incarnation,
        )
        known = ReplicationEvidence(evidence, kept=sync_flush)
        members = MemberHealth(node, health)
        raft_state = RaftState(
            node=node,
            incarnation=incarnation,
            term=term,
            vote=vote,
            raft_log=self._raft_log,
            evidence=known,
            health=members,
            ready_builder=self._ready_builder,
            config=config,
            rng=rng,
            now=now,
        )
        super().__init__(
            node=node,
            incarnation=incarnation,
            config=config,
            entry_cache=log,
            raft_log=self._raft_log,
            configurations=configurations,
            raft_state=raft_state,
            evidence=known,
            health=members,
        )
        self._elections = Elections(
            raft_state=raft_state,
            raft_log=self._raft_log,
            evidence=known,
            health=members,
            ready_builder=self._ready_builder,
        )
        self._follower = Follower(
            incarnation=incarnation,
            configurations=configurations,
            raft_state=raft_state,
            raft_log=self._raft_log,
            evidence=known,
            ready_builder=self._ready_builder,
        )

    # --- what the driver asks

    @property
    def _replicator(self) -> Replicator | None:
        leader_state = self._raft_state.leader_state
        return None if leader_state is None else leader_state.replicator

    def deadline(self) -> float:
        """When :meth:`tick` is due next."""
        raft_state = self._raft_state
        return (
            raft_state.election_at
            if raft_state.leader_state is None
            else raft_state.leader_state.deadline()
        )

    def take(self) -> Ready:
        """The Ready of the last event. A write in it must be reported with :meth:`written`."""
        ready = self._ready_builder.take()
        if ready.write is not None:
            self._raft_log.begun(ready.write)
        return ready

    # --- events: time and links

    def tick(self, now: float) -> None:
        """Acts on what is due: heartbeats and check-quorum of a leader, elections of the others."""
        raft_state = self._raft_state
        if raft_state.leader_state is not None:
            raft_state.leader_state.tick(now)
            raft_state.end_if_over(now)
        elif now >= raft_state.election_at:
            self._elections.due(now)

    def peer_connected(self, peer: str, now: float) -> None:
        """A link to a peer works now."""
        raft_state, replicator = self._raft_state, self._replicator
        raft_state.up[peer] = True
        if replicator is not None:
            if peer in replicator.peers:
                replicator.connected(peer, self.commit_index, now)
        elif not (raft_state.joins or raft_state.knows(peer)):
            return  # a stranger delays no election and hastens none
        elif raft_state.leader is None and raft_state.role is not Role.CANDIDATE:
            # We know no leader. A leader would say so at once over the new link.
            raft_state.hasten_election(now)

    def peer_lost(self, peer: str, now: float) -> None:
        """A link to a peer broke."""
        raft_state, replicator = self._raft_state, self._replicator
        raft_state.up.pop(peer, None)
        if replicator is not None:
            if peer in replicator.peers:
                replicator.lost(peer)
        elif peer == raft_state.leader:
            raft_state.leader = None
            raft_state.hasten_election(now)

    # --- events: proposals

    def next_position(self, size: int) -> int:
        """Where in the commit log an entry of ``size`` bytes would be written next."""
        return self._raft_log.next_position(size)

    def check_may_propose(self) -> None:
        """Raises a :class:`~dledger.errors.ProposeError`."""
        self._raft_state.lead().check_may_propose()

    def propose(self, entry: Entry, now: float) -> None:
        """Adds the leader's next entry: kept, written, and sent, all in this one bundle. Just
        before, :meth:`check_may_propose` must have allowed it."""
        self._raft_state.lead().propose(entry, now)

    # --- events: what an operator, or the driver, wants of a leader

    def add_learner(self, node: str, address: MemberAddress, now: float) -> int:
        """From now on ``node`` gets the log. Returns the index of the entry that says so.

        Raises :class:`~dledger.errors.NotLeaderError` and
        :class:`~dledger.errors.ChangeRefusedError`, as those below.
        """
        return self._raft_state.lead().configuration_changer.add_learner(node, address, now)

    def promote(self, node: str, now: float) -> int:
        """Makes a voter of a learner that has caught up; returns as :meth:`add_learner`."""
        return self._raft_state.lead().configuration_changer.promote(node, now)

    def remove(self, node: str, now: float) -> int:
        """Removes a member, which may be this leader; returns as :meth:`add_learner`."""
        return self._raft_state.lead().configuration_changer.remove(node, now)

    def replace_voters(self, voters: Sequence[str], now: float) -> int:
        """Makes these the voters, in one step; returns as :meth:`add_learner`."""
        return self._raft_state.lead().configuration_changer.replace(voters, now)

    def transfer_leadership(self, target: str, now: float) -> None:
        """Begins to hand the leadership to a voter."""
        self._raft_state.lead().begin_transfer(target, now)

    def step_down(self, now: float) -> None:
        """Gives up the leadership. Another member is elected after an election timeout."""
        if self._raft_state.role is Role.LEADER:
            self._raft_state.become_follower(self._raft_state.term, None, now)

    # --- events: reads

    def read_index(self, number: int, now: float) -> None:
        """Asks the leader for a read index: how far this node must have applied to serve reads that
        are asked now. The answer comes in a Ready with that number, or never if the leader does not
        answer.
        """
        raft_state = self._raft_state
        self._read_asked = None
        if raft_state.leader_state is not None:
            raft_state.leader_state.reads.ask(self.node, number, now)
        elif raft_state.leader is not None:
            self._read_asked = (raft_state.leader, number)
            self._ready_builder.send(raft_state.leader, ReadRequest(raft_state.term, number))
        else:
            self._ready_builder.read_index(number, None)

    # --- events: the disk

    def written(self, write_id: int, now: float) -> None:
        """The write of that id, and every earlier one, is durable."""
        raft_state = self._raft_state
        moved = self._raft_log.written(write_id)
        self._elections.written(write_id, now)
        if raft_state.leader_state is not None:
            raft_state.leader_state.durable(now)
            raft_state.end_if_over(now)
        elif moved:
            self._follower.durable()

    def loaded(self, peer: str, entries: list[Entry], now: float) -> None:
        """Answers a :class:`~dledger.raft.ready.Read`; no entries if they could not be read."""
        replicator = self._replicator
        if replicator is not None and peer in replicator.peers:
            replicator.loaded(peer, entries, self.commit_index, now)

    def applied(self, index: int) -> None:
        """Entries up to ``index`` are applied, so memory need not hold them for that any more."""
        self._entry_cache.evict(min(index, self._raft_log.durable_index))

    def expired(self, first_index: int) -> None:
        """The log on the disk begins with ``first_index`` now."""
        self._entry_cache.expire(first_index)

    # --- events: health and removal

    def health_changed(self, own: OwnHealth) -> None:
        """The health of this node has changed."""
        self._health.change_own(own)

    def health_reported(self, peer: str, *, healthy: bool, intact: bool) -> None:
        """A peer says whether it should lead, and whether all of its log can be read."""
        self._health.report(peer, healthy=healthy, intact=intact)

    def health_unknown(self, peer: str) -> None:
        """Forgets what a peer said about its health."""
        self._health.forget(peer)

    def removal_told(self) -> None:
        """A majority of the others have said that this node was removed."""
        self._raft_state.removed = True

    # --- events: messages

    def receive(self, sender: str, message: RaftMessage, now: float) -> None:
        """One message of a peer. Raises :class:`PeerError` if it cannot be right."""
        if sender == self.node:
            raise PeerError(f"{sender} is this node itself")
        raft_state, ready_builder = self._raft_state, self._ready_builder
        match message:
            case AppendRequest():
                self._follower.append(sender, message, now)
            case Heartbeat():
                self._follower.heartbeat(sender, message, now)
            case AppendAccepted() | AppendRejected() | HeartbeatResponse():
                self._answer(sender, message, now)
            case VoteRequest():
                self._elections.vote_requested(sender, message, now)
            case VoteResponse():
                self._elections.vote_answered(sender, message, now)
            case TimeoutNow():
                ours = (raft_state.term, raft_state.leader)
                known = raft_state.knows(sender)
                if (message.term, sender) == ours and known and self._elections.may_campaign:
                    self._elections.campaign(now, pre_vote=False, ordered=True)
            case ReadRequest():
                if not raft_state.knows(sender):
                    return
                if raft_state.leader_state is not None and message.term == raft_state.term:
                    raft_state.leader_state.reads.ask(sender, message.id, now)
                else:
                    ready_builder.send(sender, ReadResponse(raft_state.term, message.id, -1))
            case ReadResponse():
                if (sender, message.id) == self._read_asked:
                    known = message.index >= 0
                    ready_builder.read_index(message.id, message.index if known else None)

    def _answer(
        self,
        sender: str,
        message: AppendAccepted | AppendRejected | HeartbeatResponse,
        now: float,
    ) -> None:
        raft_state, leader_state = self._raft_state, self._raft_state.leader_state
        if message.term > raft_state.term:
            if self.serves(sender):
                raft_state.adopt(sender, message.term, now)
            return
        if message.term < raft_state.term or leader_state is None:
            return  # an answer to an earlier leadership
        match message:
            case AppendAccepted():
                leader_state.accepted(sender, message, now)
            case HeartbeatResponse():
                leader_state.heartbeat_answered(sender, message, now)
            case AppendRejected():
                leader_state.rejected(sender, message, now)
        raft_state.end_if_over(now)
