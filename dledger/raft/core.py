"""The Raft protocol of one node, without clock, socket, file or thread.

Events go in: a message, the time, a proposal, "this write is durable". After each event the driver
takes one bundle of :class:`~dledger.raft.ready.Ready` and compares ``commit_index``. Nothing in
here waits, and nothing is random but through the generator that was handed in, so a run is a
function of its events.

Theory of operation, by section of Ongaro's thesis:

- Elections (3.4) start after a randomised timeout, with a pre-vote (9.6) that changes no term. A
  node that hears a leader refuses every vote (stickiness, 4.2.3); a leader that hears no majority
  for an election timeout steps down (check-quorum, 6.2). When the link to the leader breaks, the
  timeout is shortened: pre-vote and stickiness make a false alarm harmless. ``raft/election.py``
  asks and grants, ``raft/raft_state.py`` holds term, vote and role.
- A vote leaves only after it is durable, the candidate's own included (3.8); see ``Write.then``.
- Replication (3.5) is in ``raft/replication.py`` for the leader, in ``raft/follower.py`` and
  ``raft/raft_log.py``
  for the follower. It confirms only what is durable *and* known to match the leader's log.
- A leader commits only entries of its own term by counting (3.6.2), so it begins with a no-op:
  ``raft/leader.py``. Beside it are its changes of the members (``raft/configuration_change.py``),
  the hand-over of the leadership (``raft/leadership_transfer.py``) and the reads that it confirms
  (``raft/leader_reads.py``).
- Who votes is what the log says (4.3, ``raft/configuration.py``). A node that lacks the entry which
  made
  a sender a member must still vote for it, and follow it. But a *stranger*, who is no member by any
  configuration from the commit index on, may as well be nobody: it is heard as candidate or leader
  only where no member has led for long (``raft/raft_state.py``), must have a longer log to get a
  vote, is believed about what is committed only once it has shown that it knows the log
  (``raft/raft_log.py``), and keeps no member from an election. Its other messages go unheard.
- No message of a peer ends a node: what cannot be right is a :class:`PeerError`, and changes
  nothing. Terms may rise only so far at a time (``raft/term_bound.py``).
"""

from __future__ import annotations

from random import Random

from dledger.config import RaftConfig
from dledger.errors import InvariantError, PeerError, SafetyProperty
from dledger.raft.configuration import NO_INCARNATION, Configuration, Configurations
from dledger.raft.election import Elections
from dledger.raft.entry_cache import EntryCache
from dledger.raft.follower import Follower
from dledger.raft.leader import LeaderState
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
from dledger.raft.raft_state import NOBODY, RaftState, Role
from dledger.raft.ready import Ready, ReadyBuilder
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import ReplicationEvidence
from store.log.entry import Entry


class Raft:
    """One node's share of the protocol."""

    def __init__(
        self,
        *,
        node: str,
        configurations: Configurations,
        log: EntryCache,
        segment_size: int,
        rng: Random,
        now: float,
        config: RaftConfig,
        term: int = 0,
        vote: str = NOBODY,
        commit_index: int = -1,
        incarnation: int = NO_INCARNATION,
        sync_flush: bool = True,
    ) -> None:
        """``commit_index`` is what is known to be committed; all of ``log`` must be durable.

        ``sync_flush`` says whether what is reported as written survives a power failure.

        ``configurations`` are those of the log, committed or not. One without any voter is that of
        a node which waits to be added to a group.
        """
        if term < log.last_term:
            # The term reaches the disk before its entries, so a part of the disk is older.
            raise InvariantError(
                SafetyProperty.ONE_LEADER,
                f"{node}: its term {term} is below {log.last_term} of its log",
            )
        self.node = node
        self.configurations = configurations
        self.incarnation = incarnation
        self.entry_cache = log
        self.config = config
        self._ready_builder = ReadyBuilder()
        self._read_asked: tuple[str, int] | None = None  # of whom, by what number
        self.raft_log = RaftLog(
            node=node,
            log=log,
            commit_index=commit_index,
            configurations=configurations,
            segment_size=segment_size,
            ready_builder=self._ready_builder,
            incarnation=incarnation,
        )
        self.evidence = ReplicationEvidence(kept=sync_flush)
        self.raft_state = RaftState(
            node=node,
            incarnation=incarnation,
            term=term,
            vote=vote,
            raft_log=self.raft_log,
            evidence=self.evidence,
            ready_builder=self._ready_builder,
            config=config,
            rng=rng,
            now=now,
        )
        self.elections = Elections(
            raft_state=self.raft_state,
            raft_log=self.raft_log,
            evidence=self.evidence,
            ready_builder=self._ready_builder,
        )
        self.follower = Follower(
            incarnation=incarnation,
            configurations=configurations,
            raft_state=self.raft_state,
            raft_log=self.raft_log,
            evidence=self.evidence,
            ready_builder=self._ready_builder,
        )

    # --- what the driver asks

    @property
    def term(self) -> int:
        """The newest term that this node knows."""
        return self.raft_state.term

    @property
    def vote(self) -> str:
        """Who got this node's vote in it."""
        return self.raft_state.vote

    @property
    def role(self) -> Role:
        """What this node is in it."""
        return self.raft_state.role

    @property
    def leader(self) -> str | None:
        """Who leads it, as far as this node knows."""
        return self.raft_state.leader

    @property
    def leader_state(self) -> LeaderState | None:
        """What this node does as its leader, if it is."""
        return self.raft_state.leader_state

    @property
    def configuration(self) -> Configuration:
        """The members, as the log says at present."""
        return self.configurations.current

    @property
    def peers(self) -> tuple[str, ...]:
        """All members but this node."""
        return tuple(name for name in self.configuration.members if name != self.node)

    def serves(self, node: str) -> bool:
        """Whether that node may have what the log holds: a member, as this node knows them, or one
        whose removal is not committed yet. Who joins is a member from the entry on that says so."""
        replicator = self.replicator
        return self.raft_state.knows(node) or (replicator is not None and node in replicator.peers)

    @property
    def counts(self) -> bool:
        """Whether this node is a voter, on the disk that counts for it."""
        return self.configuration.votes(self.node) and self.elections.sound

    @property
    def replicator(self) -> Replicator | None:
        """The leader's knowledge of its followers; None on others."""
        leader_state = self.raft_state.leader_state
        return None if leader_state is None else leader_state.replicator

    @property
    def term_first_index(self) -> int:
        """The no-op of the present leadership; -1 while this node does not lead."""
        leader_state = self.raft_state.leader_state
        return -1 if leader_state is None else leader_state.first_index

    @property
    def commit_index(self) -> int:
        """The last entry that is known to be committed."""
        return self.raft_log.commit_index

    @property
    def durable_index(self) -> int:
        """The last entry of the present log that is durable here."""
        return self.raft_log.durable_index

    @property
    def match_index(self) -> int:
        """The last entry that is durable here and known to be the leader's."""
        return self.raft_log.match_index

    def deadline(self) -> float:
        """When :meth:`tick` is due next."""
        raft_state = self.raft_state
        return (
            raft_state.election_at
            if raft_state.leader_state is None
            else raft_state.leader_state.deadline()
        )

    def take(self) -> Ready:
        """The Ready of the last event. A write in it must be reported with :meth:`written`."""
        ready = self._ready_builder.take()
        if ready.write is not None:
            self.raft_log.begun(ready.write)
        return ready

    # --- events: time and links

    def tick(self, now: float) -> None:
        """Acts on what is due: heartbeats and check-quorum of a leader, elections of the others."""
        raft_state = self.raft_state
        if raft_state.leader_state is not None:
            raft_state.leader_state.tick(now)
            raft_state.end_if_over(now)
        elif now >= raft_state.election_at:
            self.elections.due(now)

    def peer_connected(self, peer: str, now: float) -> None:
        """A link to a peer works now."""
        raft_state, replicator = self.raft_state, self.replicator
        raft_state.up[peer] = True
        if replicator is not None:
            if peer in replicator.peers:
                replicator.connected(peer, self.commit_index, now)
        elif not (raft_state.joins or raft_state.knows(peer)):
            return  # whoever it is, it keeps nobody waiting and hurries nobody
        elif raft_state.leader is None and raft_state.role is not Role.CANDIDATE:
            # Nobody leads that we know of: a leader would say so at once over the new link.
            raft_state.hasten_election(now)

    def peer_lost(self, peer: str, now: float) -> None:
        """A link to a peer broke."""
        raft_state, replicator = self.raft_state, self.replicator
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
        return self.raft_log.next_position(size)

    def check_may_propose(self) -> None:
        """Raises a :class:`~dledger.errors.ProposeError`."""
        self.raft_state.lead().check_may_propose()

    def propose(self, entry: Entry, now: float) -> None:
        """Adds the leader's next entry: kept, written, and sent, all in this one bundle."""
        leader_state = self.raft_state.lead()
        leader_state.check_may_propose()
        leader_state.propose(entry, now)

    def lead(self) -> LeaderState:
        """For changes of the members and of the leader, which an operator asks for.

        Raises :class:`~dledger.errors.NotLeaderError`.
        """
        return self.raft_state.lead()

    def step_down(self, now: float) -> None:
        """Gives up the leadership; somebody else will be elected when nobody was heard for long."""
        if self.raft_state.role is Role.LEADER:
            self.raft_state.become_follower(self.raft_state.term, None, now)

    # --- events: reads

    def read_index(self, number: int, now: float) -> None:
        """Asks how far this node must have applied to serve reads that are asked now.

        The answer comes as an effect with that number; where the leader does not answer, never.
        """
        raft_state = self.raft_state
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
        raft_state = self.raft_state
        moved = self.raft_log.written(write_id)
        self.elections.written(write_id, now)
        if raft_state.leader_state is not None:
            raft_state.leader_state.durable(now)
            raft_state.end_if_over(now)
        elif moved:
            self.follower.durable()

    def loaded(self, peer: str, entries: list[Entry], now: float) -> None:
        """Answers a :class:`~dledger.raft.ready.Read`; no entries if they could not be read."""
        replicator = self.replicator
        if replicator is not None and peer in replicator.peers:
            replicator.loaded(peer, entries, self.commit_index, now)

    # --- events: messages

    def receive(self, sender: str, message: RaftMessage, now: float) -> None:
        """One message of a peer. Raises :class:`PeerError` if it cannot be right."""
        if sender == self.node:
            raise PeerError(f"{sender} is this node itself")
        raft_state, ready_builder = self.raft_state, self._ready_builder
        match message:
            case AppendRequest():
                self.follower.append(sender, message, now)
            case Heartbeat():
                self.follower.heartbeat(sender, message, now)
            case AppendAccepted() | AppendRejected() | HeartbeatResponse():
                self._answer(sender, message, now)
            case VoteRequest():
                self.elections.vote_requested(sender, message, now)
            case VoteResponse():
                self.elections.vote_answered(sender, message, now)
            case TimeoutNow():
                ours = (raft_state.term, raft_state.leader)
                known = raft_state.knows(sender)
                if (message.term, sender) == ours and known and self.elections.may_campaign:
                    self.elections.campaign(now, pre_vote=False, ordered=True)
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
        raft_state, leader_state = self.raft_state, self.raft_state.leader_state
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
