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
- A leader commits only entries of its own term by counting (3.6.2), so it begins with a no-op.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from random import Random

from dledger.config import RaftConfig
from dledger.effects import Effects, Outbox
from dledger.errors import BusyError, InvariantError, NotLeaderError, PeerError
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
    VoteRequest,
    VoteResponse,
)
from dledger.quorum import VoteResult, vote_result
from dledger.replication import Replicator
from store.entry import HEADER_SIZE, Entry, EntryKind, build_entry

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
        voters: Collection[str],
        log: RaftLog,
        segment_size: int,
        rng: Random,
        now: float,
        config: RaftConfig,
        term: int = 0,
        vote: str = NOBODY,
        commit_index: int = -1,
    ) -> None:
        """``commit_index`` is what is known to be committed; all of ``log`` must be durable."""
        if node not in voters:
            raise ValueError(f"node {node} is not among the voters {sorted(voters)}")
        if term < log.last_term:
            # The term reaches the disk before its entries, so a part of the disk is older.
            raise InvariantError(f"{node}: its term {term} is below {log.last_term} of its log")
        self.node = node
        self.voters = tuple(sorted(voters))
        self.log = log
        self.config = config
        self.term = term
        self.vote = vote
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.replicator: Replicator | None = None
        self.term_first_index = -1  # the leader's no-op of this term
        self.campaigns = True  # whether this node ever asks for votes
        self.patience = 1.0  # how many times as long as usual it waits before it does
        self._rng = rng
        self._outbox = Outbox()
        self._local = LocalLog(
            node=node,
            log=log,
            commit_index=commit_index,
            segment_size=segment_size,
            outbox=self._outbox,
        )
        self._up: dict[str, bool] = {}  # peers with a working link, in order of connection
        self._votes: dict[str, bool] = {}
        self._own_vote_write: int | None = None
        self._leader_heard_at = now
        self._election_at = now + self._draw(config.election_seconds)
        self._quorum_check_at = now

    # --- what the driver asks

    @property
    def peers(self) -> tuple[str, ...]:
        """All voters but this node."""
        return tuple(voter for voter in self.voters if voter != self.node)

    @property
    def commit_index(self) -> int:
        """The last entry that is known to be committed."""
        return self._local.commit_index

    @property
    def durable_index(self) -> int:
        """The last entry of the present log that is durable here."""
        return self._local.durable_index

    def deadline(self) -> float:
        """When :meth:`tick` is due next."""
        if self.replicator is not None:
            return min(self.replicator.deadline(), self._quorum_check_at)
        return self._election_at

    def take(self) -> Effects:
        """The effects of the last event. A write in it must be reported with :meth:`written`."""
        effects = self._outbox.take()
        if effects.write is not None:
            self._local.begun(effects.write)
        return effects

    # --- events: time and links

    def tick(self, now: float) -> None:
        """Acts on what is due: heartbeats and check-quorum of a leader, elections of the others."""
        if self.replicator is None:
            if now >= self._election_at:
                if self.campaigns:
                    self._campaign(now, pre_vote=True)
                else:
                    self._election_at = now + self._draw(self.config.election_seconds)
            return
        if now >= self._quorum_check_at:
            self._quorum_check_at = now + self.config.election_seconds
            if not self.replicator.heard_by_majority(now - self.config.election_seconds):
                self._become_follower(self.term, None, now)
                return
        self.replicator.tick(self.commit_index, now)

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
        """Raises :class:`NotLeaderError` or :class:`BusyError`."""
        if self.role is not Role.LEADER:
            raise NotLeaderError(self.leader)
        waiting = self._local.waiting_bytes()
        if waiting > self.config.uncommitted_bytes_max:
            raise BusyError(waiting, self.config.uncommitted_bytes_max)

    def propose(self, entry: Entry, now: float) -> None:
        """Adds the leader's next entry: kept, written, and sent, all in this one bundle."""
        self.check_may_propose()
        self._local.add(entry)
        assert self.replicator is not None  # noqa: S101 - a leader has one; for the type checker
        self.replicator.replicate_all(self.commit_index, now)

    def written(self, write_id: int, now: float) -> None:
        """The write of that id, and every earlier one, is durable."""
        moved = self._local.written(write_id)
        if self._own_vote_write is not None and write_id >= self._own_vote_write:
            self._own_vote_write = None
            self._count_vote(self.node, now, granted=True)
        if self.replicator is not None:
            self.replicator.durable(self._local.durable_index)
            self._advance_commit(now)
        elif moved and self.leader is not None:
            self._send(self.leader, AppendAccepted(self.term, self._local.match_index))

    def loaded(self, peer: str, entries: list[Entry], now: float) -> None:
        """Answers a :class:`~dledger.effects.Read`; no entries if they could not be read."""
        if self.replicator is not None and peer in self.replicator.peers:
            self.replicator.loaded(peer, entries, self.commit_index, now)

    # --- events: messages

    def receive(self, sender: str, message: RaftMessage, now: float) -> None:
        """One message of a peer. Raises :class:`PeerError` if it cannot be right."""
        if sender not in self.voters or sender == self.node:
            raise PeerError(f"{sender} is not a peer of {self.node}")
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
                self._send(sender, HeartbeatResponse(self.term, *held))
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
        if message.term < self.term or self.replicator is None:
            return  # an answer to an earlier leadership
        commit = self.commit_index
        match message:
            case AppendAccepted(match_index=index):
                if index > self.log.last_index:
                    raise PeerError(f"{sender} confirms entry {index} that does not exist")
                moved = self.replicator.accepted(sender, index, commit, now)
            case HeartbeatResponse():
                if message.match_index > self.log.last_index:
                    raise PeerError(f"{sender} confirms entry {message.match_index} of nobody")
                moved = self.replicator.heartbeat_answered(sender, message, commit, now)
            case AppendRejected():
                self.replicator.rejected(sender, message, commit, now)
                moved = False
        if moved:
            self._advance_commit(now)

    # --- elections

    def _draw(self, seconds: float) -> float:
        return seconds * self.patience * (1 + self._rng.random())

    def _hurry_election(self, now: float) -> None:
        self._election_at = min(
            self._election_at, now + self._draw(self.config.lost_leader_seconds)
        )

    def _campaign(self, now: float, *, pre_vote: bool) -> None:
        self.leader = None
        self._votes = {}
        self._election_at = now + self._draw(self.config.election_seconds)
        self._own_vote_write = None
        if pre_vote:
            self.role = Role.PRE_CANDIDATE
            request = VoteRequest(self.term + 1, self.log.last_index, self.log.last_term, True)
            for peer in self.peers:
                self._send(peer, request)
            self._count_vote(self.node, now, granted=True)
            return
        self.role = Role.CANDIDATE
        self._set_hard_state(self.term + 1, self.node)
        request = VoteRequest(self.term, self.log.last_index, self.log.last_term, False)
        for peer in self.peers:
            self._outbox.send_after_write(peer, request)
        self._own_vote_write = self._outbox.write().id

    def _count_vote(self, voter: str, now: float, *, granted: bool) -> None:
        if self.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            return
        self._votes[voter] = granted or self._votes.get(voter, False)  # no vote is taken back
        # Who cannot be reached will not vote: do not wait for it through a whole timeout.
        silent = {peer: False for peer in self.peers if peer not in self._up}
        result = vote_result(self.voters, {**silent, **self._votes})
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
        led = self.role is Role.LEADER or (
            self.leader is not None and now - self._leader_heard_at < self.config.election_seconds
        )
        if led or request.term < self.term:
            self._send(sender, VoteResponse(self.term, False, request.pre_vote))
            return
        up_to_date = (request.last_term, request.last_index) >= (
            self.log.last_term,
            self.log.last_index,
        )
        if request.pre_vote:
            free = request.term > self.term or self.vote in (NOBODY, sender)
            granted = up_to_date and free
            term = request.term if granted else self.term
            self._send(sender, VoteResponse(term, granted, True))
            return
        if request.term > self.term:
            self._become_follower(request.term, None, now)
        if up_to_date and self.vote in (NOBODY, sender):
            self._election_at = now + self._draw(self.config.election_seconds)
            self._set_hard_state(self.term, sender)
            self._outbox.send_after_write(sender, VoteResponse(self.term, True, False))
        else:
            self._send(sender, VoteResponse(self.term, False, False))

    def _vote_response(self, sender: str, answer: VoteResponse, now: float) -> None:
        if not answer.granted and answer.term > self.term:
            self._become_follower(answer.term, None, now)
            return
        asked = self.term + 1 if answer.pre_vote else self.term
        if answer.granted and answer.term != asked:
            return
        if answer.pre_vote == (self.role is Role.PRE_CANDIDATE):
            self._count_vote(sender, now, granted=answer.granted)

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
        self.replicator = None
        self._own_vote_write = None
        self._election_at = now + self._draw(self.config.election_seconds)

    def _become_leader(self, now: float) -> None:
        self.role = Role.LEADER
        self.leader = self.node
        self._quorum_check_at = now + self.config.election_seconds
        self.replicator = Replicator(
            node=self.node,
            term=self.term,
            peers=self.peers,
            connected=self._up,
            log=self.log,
            durable_index=self._local.durable_index,
            outbox=self._outbox,
            config=self.config,
            now=now,
        )
        self.term_first_index = self.log.last_index + 1
        no_op = build_entry(
            EntryKind.NO_OP,
            self.term_first_index,
            self.term,
            self.next_position(HEADER_SIZE),
            self.log.chain_crc,
            (),
        )
        self._local.add(no_op)
        self.replicator.tick(self.commit_index, now)

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

    # --- commit

    def _advance_commit(self, now: float) -> None:
        if self.replicator is None:
            return
        index = self.replicator.quorum_index()
        # Only an entry of the present term commits by counting; older ones follow (figure 8).
        if index > self.commit_index and self.log.term_at(index) == self.term:
            self._local.commit_to(index)
            self.replicator.committed(now)

    def _send(self, to: str, message: Message) -> None:
        self._outbox.send(to, message)
