"""The Raft protocol of one node, without clock, socket, file or thread.

Events go in: a message, the time, a proposal, "this write is durable". After each event the driver
takes one bundle of :class:`~dledger.effects.Effects` and compares ``commit_index``. Nothing in here
waits, and nothing is random but through the generator that was handed in, so a run is a function of
its events.

Theory of operation, by section of Ongaro's thesis:

- Elections (3.4) start after a randomised timeout, with a pre-vote (9.6) that changes no term. A
  node that hears a leader refuses every vote (stickiness, 4.2.3); a leader that hears no majority
  for an election timeout steps down (check-quorum, 6.2). When the link to the leader breaks, the
  timeout is shortened: pre-vote and stickiness make a false alarm harmless.
- A vote leaves only after it is durable, the candidate's own included (3.8); see ``Write.then``.
- Replication (3.5) is in ``replication.py`` for the leader and in ``locallog.py`` for the follower,
  which confirms only what is durable *and* known to match the present leader's log.
- A leader commits only entries of its own term by counting (3.6.2), so it begins with a no-op;
  that, changes of the members, transfer and reads are in ``leading.py``.
- Who votes is what the log says (4.3, ``configuration.py``). Requests are heard from anybody: a
  node that lacks the entry which made the sender a member must still vote for it, and follow it.
- A node on another disk than the one that is noted for it neither votes nor campaigns, nor does
  an empty one vote for somebody who is not: it may be a voter that lost what it had confirmed.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from dledger.config import RaftConfig
from dledger.configuration import NO_INCARNATION, Configuration, Configurations, MemberAddress
from dledger.effects import Effects, Outbox
from dledger.errors import InvariantError, NotLeaderError, PeerError
from dledger.leading import Leading
from dledger.locallog import LocalLog
from dledger.log import RaftLog
from dledger.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    RaftMessage,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.quorum import VoteResult, joint_vote_result
from dledger.replication import Replicator
from store.entry import Entry

NOBODY = ""


class Role(Enum):
    """What a node is in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Raft:
    """One node's share of the protocol."""

    def __init__(
        self,
        *,
        node: str,
        configurations: Configurations,
        log: RaftLog,
        segment_size: int,
        rng: Random,
        now: float,
        config: RaftConfig,
        term: int = 0,
        vote: str = NOBODY,
        commit_index: int = -1,
        incarnation: int = NO_INCARNATION,
    ) -> None:
        """``commit_index`` is what is known to be committed; all of ``log`` must be durable.

        ``configurations`` are those of the log, committed or not. One without any voter is that of
        a node which waits to be added to a group.
        """
        if term < log.last_term:
            # The term reaches the disk before its entries, so a part of the disk is older.
            raise InvariantError(f"{node}: its term {term} is below {log.last_term} of its log")
        self.node = node
        self.configurations = configurations
        self.incarnation = incarnation
        self.log = log
        self.config = config
        self.term = term
        self.vote = vote
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.leading: Leading | None = None
        self.campaigns = True  # whether this node ever asks for votes
        self.votes = True  # whether it ever grants one
        self.patience = 1.0  # how many times as long as usual it waits before it does
        self._rng = rng
        self._outbox = Outbox()
        self._local = LocalLog(
            node=node,
            log=log,
            commit_index=commit_index,
            configurations=configurations,
            segment_size=segment_size,
            outbox=self._outbox,
            incarnation=incarnation,
        )
        self._up: dict[str, bool] = {}  # peers with a working link, in order of connection
        self._votes: dict[str, bool] = {}
        self._own_vote_write: int | None = None
        self._leader_heard_at = now
        self._election_at = now + self._draw(config.election_seconds)

    # --- what the driver asks

    @property
    def configuration(self) -> Configuration:
        """The members, as the log says at present."""
        return self.configurations.current

    @property
    def peers(self) -> tuple[str, ...]:
        """All members but this node."""
        return tuple(name for name in self.configuration.members if name != self.node)

    @property
    def counts(self) -> bool:
        """Whether this node is a voter, on the disk that is noted for it."""
        found = self.configuration
        return found.votes(self.node) and found.trusts(self.node, self.incarnation)

    @property
    def _may_campaign(self) -> bool:
        """A voter, or one that is to be none as soon as an entry is committed which may not be yet:
        if its log is the longest, nobody else can be elected (thesis 4.2.2)."""
        found = self.configuration
        committed = self.configurations.at(self.commit_index)
        voter = found.votes(self.node) or committed.votes(self.node)
        return voter and found.trusts(self.node, self.incarnation)

    @property
    def replicator(self) -> Replicator | None:
        """The leader's knowledge of its followers; None on others."""
        return None if self.leading is None else self.leading.replicator

    @property
    def term_first_index(self) -> int:
        """The no-op of the present leadership; -1 while this node does not lead."""
        return -1 if self.leading is None else self.leading.first_index

    @property
    def commit_index(self) -> int:
        """The last entry that is known to be committed."""
        return self._local.commit_index

    @property
    def durable_index(self) -> int:
        """The last entry of the present log that is durable here."""
        return self._local.durable_index

    @property
    def match_index(self) -> int:
        """The last entry that is durable here and known to be the leader's."""
        return self._local.match_index

    def deadline(self) -> float:
        """When :meth:`tick` is due next."""
        return self._election_at if self.leading is None else self.leading.deadline()

    def take(self) -> Effects:
        """The effects of the last event. A write in it must be reported with :meth:`written`."""
        effects = self._outbox.take()
        if effects.write is not None:
            self._local.begun(effects.write)
        return effects

    # --- events: time and links

    def tick(self, now: float) -> None:
        """Acts on what is due: heartbeats and check-quorum of a leader, elections of the others."""
        if self.leading is not None:
            self.leading.tick(now)
            self._end_if_over(now)
        elif now >= self._election_at:
            if self.campaigns and self._may_campaign:
                self._campaign(now, pre_vote=True)
            else:
                self._election_at = now + self._draw(self.config.election_seconds)

    def peer_connected(self, peer: str, now: float) -> None:
        """A link to a peer works now."""
        self._up[peer] = True
        if self.replicator is not None:
            if peer in self.replicator.peers:
                self.replicator.connected(peer, self.commit_index, now)
        elif self.leader is None and self.role is not Role.CANDIDATE:
            # Nobody leads that we know of: a leader would say so at once over the new link.
            self._hurry_election(now)

    def peer_lost(self, peer: str, now: float) -> None:
        """A link to a peer broke."""
        self._up.pop(peer, None)
        if self.replicator is not None:
            if peer in self.replicator.peers:
                self.replicator.lost(peer)
        elif peer == self.leader:
            self.leader = None
            self._hurry_election(now)

    # --- events: proposals and the disk

    def next_position(self, size: int) -> int:
        """Where in the commit log an entry of ``size`` bytes would be written next."""
        return self._local.next_position(size)

    def check_may_propose(self) -> None:
        """Raises a :class:`~dledger.errors.ProposeError`."""
        self._lead().check_may_propose()

    def propose(self, entry: Entry, now: float) -> None:
        """Adds the leader's next entry: kept, written, and sent, all in this one bundle."""
        leading = self._lead()
        leading.check_may_propose()
        leading.propose(entry, now)

    def _lead(self) -> Leading:
        if self.leading is None:
            raise NotLeaderError(self.leader)
        return self.leading

    # --- events: what an operator wants

    def add_learner(self, node: str, address: MemberAddress, now: float) -> int:
        """The entry of the change. Raises :class:`~dledger.errors.ProposeError`, as those below."""
        return self._lead().add_learner(node, address, now)

    def promote(self, node: str, now: float) -> int:
        """Makes a voter of a learner that has caught up."""
        return self._lead().promote(node, now)

    def remove(self, node: str, now: float) -> int:
        """Takes a member out."""
        return self._lead().remove(node, now)

    def transfer(self, target: str, now: float) -> None:
        """Hands the leadership over in order; :attr:`leader` tells whether that came about."""
        self._lead().begin_transfer(target, now)

    # --- events: reads

    def read_index(self, number: int, now: float) -> None:
        """Asks how far this node must have applied to serve reads that are asked now.

        The answer comes as an effect with that number; where the leader does not answer, never.
        """
        if self.leading is not None:
            self.leading.ask_read(self.node, number, now)
        elif self.leader is not None:
            self._send(self.leader, ReadRequest(self.term, number))
        else:
            self._outbox.read_index(number, None)

    # --- events: the disk

    def written(self, write_id: int, now: float) -> None:
        """The write of that id, and every earlier one, is durable."""
        moved = self._local.written(write_id)
        if self._own_vote_write is not None and write_id >= self._own_vote_write:
            self._own_vote_write = None
            self._count_vote(self.node, now, granted=True)
        if self.leading is not None:
            self.leading.durable(now)
            self._end_if_over(now)
        elif moved and self.leader is not None:
            match_index = self._local.match_index
            self._send(self.leader, AppendAccepted(self.term, match_index, self.incarnation))

    def loaded(self, peer: str, entries: list[Entry], now: float) -> None:
        """Answers a :class:`~dledger.effects.Read`; no entries if they could not be read."""
        if self.replicator is not None and peer in self.replicator.peers:
            self.replicator.loaded(peer, entries, self.commit_index, now)

    # --- events: messages

    def receive(self, sender: str, message: RaftMessage, now: float) -> None:
        """One message of a peer. Raises :class:`PeerError` if it cannot be right."""
        if sender == self.node:
            raise PeerError(f"{sender} is this node itself")
        match message:
            case VoteRequest():
                self._vote_request(sender, message, now)
            case AppendRequest():
                answer: Message | None = AppendRejected(self.term, message.prev_index, -1, 0)
                if self._follow(sender, message.term, now):
                    answer = self._local.accept(sender, message)
                if answer is not None:
                    self._send(sender, answer)
            case Heartbeat():
                local = self._local
                if self._follow(sender, message.term, now):
                    local.commit_to(min(message.commit_index, local.verified_index))
                held = (local.match_index, local.received_index)
                echo = (message.round, self.incarnation, self.log.last_index)
                self._send(sender, HeartbeatResponse(self.term, *held, *echo))
            case TimeoutNow():
                if (message.term, sender) == (self.term, self.leader) and self._may_campaign:
                    self._campaign(now, pre_vote=False, ordered=True)
            case ReadRequest():
                if self.leading is not None and message.term == self.term:
                    self.leading.ask_read(sender, message.id, now)
                else:
                    self._send(sender, ReadResponse(self.term, message.id, -1))
            case ReadResponse():
                known = message.index >= 0
                self._outbox.read_index(message.id, message.index if known else None)
            case _:
                self._answer(sender, message, now)

    def _answer(
        self,
        sender: str,
        message: VoteResponse | AppendAccepted | AppendRejected | HeartbeatResponse,
        now: float,
    ) -> None:
        if isinstance(message, VoteResponse):
            self._vote_response(sender, message, now)
            return
        if message.term > self.term:
            self._become_follower(message.term, None, now)
            return
        leading = self.leading
        if message.term < self.term or leading is None:
            return  # an answer to an earlier leadership
        match message:
            case AppendAccepted():
                leading.accepted(sender, message, now)
            case HeartbeatResponse():
                leading.heartbeat_answered(sender, message, now)
            case AppendRejected():
                leading.rejected(sender, message, now)
        self._end_if_over(now)

    # --- elections

    def _draw(self, seconds: float) -> float:
        return seconds * self.patience * (1 + self._rng.random())

    def _hurry_election(self, now: float) -> None:
        self._election_at = min(
            self._election_at, now + self._draw(self.config.lost_leader_seconds)
        )

    def _campaign(self, now: float, *, pre_vote: bool, ordered: bool = False) -> None:
        self.leader = None
        self._votes = {}
        self._election_at = now + self._draw(self.config.election_seconds)
        self._own_vote_write = None
        if pre_vote:
            self.role = Role.PRE_CANDIDATE
            request = self._vote_request_of(self.term + 1, pre_vote=True, ordered=False)
            for peer in self.peers:
                self._send(peer, request)
            self._count_vote(self.node, now, granted=True)
            return
        self.role = Role.CANDIDATE
        self._set_hard_state(self.term + 1, self.node)
        request = self._vote_request_of(self.term, pre_vote=False, ordered=ordered)
        for peer in self.peers:
            self._outbox.send_after_write(peer, request)
        self._own_vote_write = self._outbox.write().id

    def _vote_request_of(self, term: int, *, pre_vote: bool, ordered: bool) -> VoteRequest:
        log = self.log
        return VoteRequest(term, log.last_index, log.last_term, pre_vote, ordered, self.incarnation)

    def _count_vote(self, voter: str, now: float, *, granted: bool) -> None:
        if self.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            return
        self._votes[voter] = granted or self._votes.get(voter, False)  # no vote is taken back
        # Who cannot be reached will not vote: do not wait for it through a whole timeout.
        silent = {peer: False for peer in self.peers if peer not in self._up}
        result = joint_vote_result(self.configuration.quorums, {**silent, **self._votes})
        if result is VoteResult.LOST:
            split = self.role is Role.CANDIDATE
            self._become_follower(self.term, None, now)
            if split:
                self._hurry_election(now)
        elif result is VoteResult.WON:
            if self.role is Role.PRE_CANDIDATE:
                self._campaign(now, pre_vote=False)
            else:
                self._become_leader(now)

    def _vote_request(self, sender: str, request: VoteRequest, now: float) -> None:
        if request.term < self.term or (self._is_led(now) and not request.ordered):
            self._refuse_vote(sender, request)
            return
        log = self.log
        up_to_date = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
        willing = up_to_date and self._may_vote(sender, request)
        if request.pre_vote:
            if willing and (request.term > self.term or self.vote in (NOBODY, sender)):
                self._send(sender, VoteResponse(request.term, True, True, self.incarnation))
            else:
                self._refuse_vote(sender, request)
            return
        if request.term > self.term:
            self._become_follower(request.term, None, now)
        if willing and self.vote in (NOBODY, sender):
            self._election_at = now + self._draw(self.config.election_seconds)
            self._set_hard_state(self.term, sender)
            answer = VoteResponse(self.term, True, False, self.incarnation)
            self._outbox.send_after_write(sender, answer)
        else:
            self._refuse_vote(sender, request)

    def _refuse_vote(self, sender: str, request: VoteRequest) -> None:
        answer = VoteResponse(self.term, False, request.pre_vote, self.incarnation)
        self._send(sender, answer)

    def _is_led(self, now: float) -> bool:
        """Whether a leader was heard so lately that nobody else may be elected (stickiness)."""
        if self.role is Role.LEADER:
            return True
        # A lease counts on this even when the link broke, or the node started anew.
        known = self.leader is not None or self.config.lease_reads
        return known and now - self._leader_heard_at < self.config.election_seconds

    def _may_vote(self, sender: str, request: VoteRequest) -> bool:
        """Not on a disk that may have lost what was confirmed, nor for somebody on such a disk."""
        found = self.configuration
        if not self.votes:
            return False
        if not found.trusts(self.node, self.incarnation):
            return False
        if not found.trusts(sender, request.incarnation):
            return False
        fresh = self.incarnation != NO_INCARNATION and self.log.last_index < 0
        return not fresh or request.last_index < 0

    def _vote_response(self, sender: str, answer: VoteResponse, now: float) -> None:
        if not answer.granted and answer.term > self.term:
            self._become_follower(answer.term, None, now)
            return
        asked = self.term + 1 if answer.pre_vote else self.term
        if answer.granted and answer.term != asked:
            return
        trusted = self.configuration.trusts(sender, answer.incarnation)
        if answer.pre_vote == (self.role is Role.PRE_CANDIDATE):
            self._count_vote(sender, now, granted=answer.granted and trusted)

    # --- roles

    def step_down(self, now: float) -> None:
        """Gives up the leadership; somebody else will be elected when nobody was heard for long."""
        if self.role is Role.LEADER:
            self._become_follower(self.term, None, now)

    def _set_hard_state(self, term: int, vote: str) -> None:
        if term < self.term:
            raise InvariantError(f"{self.node}: term would go back from {self.term} to {term}")
        write = self._outbox.write()
        write.hard_state = (term, vote)
        if term > self.term:
            self._local.new_term(write.id)
        self.term = term
        self.vote = vote

    def _become_follower(self, term: int, leader: str | None, now: float) -> None:
        if term > self.term:
            self._set_hard_state(term, NOBODY)
        self.role = Role.FOLLOWER
        self.leader = leader
        if self.leading is not None:
            self.leading.drop_reads()
            self.leading = None
        self._own_vote_write = None
        self._election_at = now + self._draw(self.config.election_seconds)

    def _become_leader(self, now: float) -> None:
        self.role = Role.LEADER
        self.leader = self.node
        self.leading = Leading(
            node=self.node,
            incarnation=self.incarnation,
            term=self.term,
            local=self._local,
            outbox=self._outbox,
            config=self.config,
            connected=self._up,
            now=now,
        )

    def _end_if_over(self, now: float) -> None:
        if self.leading is not None and self.leading.over:
            self._become_follower(self.term, None, now)

    def _follow(self, sender: str, term: int, now: float) -> bool:
        """Takes the sender of an append or heartbeat as leader, unless its term is over."""
        if term < self.term:
            return False
        if term == self.term and self.leader not in (None, sender):
            raise InvariantError(f"{self.leader} and {sender} both lead term {term}")
        if term > self.term or self.leader != sender or self.role is not Role.FOLLOWER:
            self._become_follower(term, sender, now)
        self._leader_heard_at = now
        self._election_at = now + self._draw(self.config.election_seconds)
        return True

    def _send(self, to: str, message: Message) -> None:
        self._outbox.send(to, message)
