"""Elections (Raft thesis 3.4, 3.6.1, 9.6): how a node asks for votes, grants them and counts them.

A pre-vote asks whether a vote would be granted and changes no term. A vote, the candidate's own
included, leaves only after it is durable (3.8). A node on another disk than the noted one neither
votes nor campaigns. An empty node may be a voter that lost what it had confirmed, so it has rules
of its own (``raft/bootstrap.py``). If a log ends before what its disk is known to have held, it
gets no vote, and its vote does not count (``raft/replication_evidence.py``).
"""

from __future__ import annotations

from dledger.raft.bootstrap import Bootstrap
from dledger.raft.configuration import Configurations, check_incarnation
from dledger.raft.health import MemberHealth
from dledger.raft.messages import VoteRequest, VoteResponse
from dledger.raft.quorum import VoteResult, joint_vote_result
from dledger.raft.raft_log import RaftLog
from dledger.raft.raft_state import NOBODY, RaftState, Role
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication_evidence import ReplicationEvidence
from dledger.raft.term_bound import TERM_MAX


class Elections:
    """See the module."""

    def __init__(
        self,
        *,
        raft_state: RaftState,
        raft_log: RaftLog,
        evidence: ReplicationEvidence,
        health: MemberHealth,
        ready_builder: ReadyBuilder,
    ) -> None:
        self._raft_state = raft_state
        self._raft_log = raft_log
        self._log = raft_log.entry_cache
        self._evidence = evidence
        self._health = health
        self._bootstrap = Bootstrap(raft_state=raft_state, raft_log=raft_log, evidence=evidence)
        self._configurations: Configurations = raft_log.configurations
        self._ready_builder = ready_builder
        self._votes: dict[str, bool] = {}
        self._own_vote_write: int | None = None

    # --- asking

    @property
    def may_campaign(self) -> bool:
        """Whether this node may campaign: it is a voter, or its removal may not be committed yet.
        If its log is the longest then, nobody else can be elected (thesis 4.2.2)."""
        raft_state, found = self._raft_state, self._configurations.current
        committed = self._configurations.at(self._raft_log.commit_index)
        voter = found.votes(raft_state.node) or committed.votes(raft_state.node)
        return voter and raft_state.sound

    def due(self, now: float) -> None:
        """No leader was heard for an election timeout."""
        found = self._configurations.current
        willing = self._health.campaigns(filter(found.votes, self._peers()))
        if willing and self.may_campaign and self._raft_state.term < TERM_MAX:
            if self._raft_state.removed:
                self._raft_state.back_off_elections()
            self.campaign(now, pre_vote=True)
        else:
            self._raft_state.wait(now)

    def campaign(self, now: float, *, pre_vote: bool, ordered: bool = False) -> None:
        """Asks all others for their votes; ``ordered`` if the leader itself wants it."""
        raft_state = self._raft_state
        raft_state.leader = None
        self._votes = {}
        raft_state.wait(now)
        self._own_vote_write = None
        if pre_vote:
            raft_state.role = Role.PRE_CANDIDATE
            request = self._request(raft_state.term + 1, pre_vote=True, ordered=False)
            for peer in self._peers():
                self._ready_builder.send(peer, request)
            self._count(raft_state.node, now, granted=True)
            return
        raft_state.role = Role.CANDIDATE
        raft_state.elections += 1
        raft_state.set_hard_state(raft_state.term + 1, raft_state.node)
        request = self._request(raft_state.term, pre_vote=False, ordered=ordered)
        for peer in self._peers():
            self._ready_builder.send_after_write(peer, request)
        self._own_vote_write = self._ready_builder.write().id

    def _request(self, term: int, *, pre_vote: bool, ordered: bool) -> VoteRequest:
        log, incarnation = self._log, self._raft_state.incarnation
        return VoteRequest(term, log.last_index, log.last_term, pre_vote, ordered, incarnation)

    def _peers(self) -> list[str]:
        node = self._raft_state.node
        return [name for name in self._configurations.current.members if name != node]

    # --- counting

    def written(self, write_id: int, now: float) -> None:
        """That write is durable: the candidate's own vote counts once it is."""
        if self._own_vote_write is not None and write_id >= self._own_vote_write:
            self._own_vote_write = None
            self._count(self._raft_state.node, now, granted=True)

    def vote_answered(self, sender: str, answer: VoteResponse, now: float) -> None:
        """A voter says yes or no."""
        raft_state = self._raft_state
        if not raft_state.knows(sender):
            return  # it was not asked
        check_incarnation(sender, answer.incarnation)
        self._bootstrap.meet(sender, answer.incarnation, answer.log_index)
        if not answer.granted and answer.term > raft_state.term:
            raft_state.adopt(sender, answer.term, now)
            return
        asked = raft_state.term + 1 if answer.pre_vote else raft_state.term
        if answer.granted and answer.term != asked:
            return
        found = self._configurations.current
        trusted = self._evidence.counts(found, sender, answer.incarnation)
        if self._evidence.lacks(sender, answer.incarnation, answer.log_index):
            trusted = False
        if self._bootstrap.applies and not self._bootstrap.may_begin:
            trusted = False
        if answer.pre_vote == (raft_state.role is Role.PRE_CANDIDATE):
            self._count(sender, now, granted=answer.granted and trusted)

    def _count(self, voter: str, now: float, *, granted: bool) -> None:
        raft_state = self._raft_state
        if raft_state.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            return
        self._votes[voter] = granted or self._votes.get(voter, False)  # no vote is taken back
        # A voter that cannot be reached will not vote: do not wait a whole timeout for it.
        silent = {peer: False for peer in self._peers() if peer not in raft_state.up}
        quorums = self._configurations.current.quorums
        result = joint_vote_result(quorums, {**silent, **self._votes})
        if result is VoteResult.LOST:
            split = raft_state.role is Role.CANDIDATE
            raft_state.become_follower(raft_state.term, None, now)
            if split or raft_state.hurries:
                raft_state.try_again(now)
        elif result is VoteResult.WON:
            if raft_state.role is Role.PRE_CANDIDATE:
                self.campaign(now, pre_vote=False)
            else:
                raft_state.become_leader(now)

    # --- granting

    def vote_requested(self, sender: str, request: VoteRequest, now: float) -> None:
        """A candidate asks for this node's vote, or in a pre-vote whether it would get it. It may
        be a voter by an entry that is not here yet. Then its log must be longer, and no member may
        have led for long. A leader that asks leads no more, so stickiness protects nobody.
        """
        raft_state, log = self._raft_state, self._log
        check_incarnation(sender, request.incarnation)
        stranger = not raft_state.knows(sender)
        if not stranger:
            self._bootstrap.meet(sender, request.incarnation, request.last_index)
        ordered = request.ordered and not stranger
        if (
            request.term < raft_state.term
            or (raft_state.is_led(now) and not (ordered or sender == raft_state.leader))
            or (stranger and not raft_state.accepts_strangers(now))
        ):
            self._refuse(sender, request)
            return
        theirs, ours = (request.last_term, request.last_index), (log.last_term, log.last_index)
        up_to_date = theirs > ours if stranger else theirs >= ours
        willing = up_to_date and self._may_vote(sender, request)
        raft_state.terms.check(sender, raft_state.term, request.term)
        if request.pre_vote:
            if willing and (request.term > raft_state.term or raft_state.vote in (NOBODY, sender)):
                incarnation, last_index = raft_state.incarnation, log.last_index
                answer = VoteResponse(request.term, True, True, incarnation, last_index)
                self._ready_builder.send(sender, answer)
            else:
                self._refuse(sender, request)
            return
        if stranger and not willing:
            self._refuse(sender, request)  # its term is nobody else's yet
            return
        if stranger:
            raft_state.stranger_heard(now)
        reached = request.term == raft_state.term or raft_state.adopt(sender, request.term, now)
        if reached and willing and raft_state.vote in (NOBODY, sender):
            raft_state.wait(now)
            raft_state.set_hard_state(raft_state.term, sender)
            incarnation, last_index = raft_state.incarnation, log.last_index
            answer = VoteResponse(raft_state.term, True, False, incarnation, last_index)
            self._ready_builder.send_after_write(sender, answer)
        else:
            self._refuse(sender, request)

    def _refuse(self, sender: str, request: VoteRequest) -> None:
        raft_state, pre_vote = self._raft_state, request.pre_vote
        held = (raft_state.incarnation, self._log.last_index)
        self._ready_builder.send(sender, VoteResponse(raft_state.term, False, pre_vote, *held))

    def _may_vote(self, sender: str, request: VoteRequest) -> bool:
        """No vote from a disk that may have lost what was confirmed, and none for such a disk."""
        found, founding = self._configurations.current, self._bootstrap
        if not self._health.own.holds_confirmed:
            return False
        if not self._raft_state.sound:
            return False
        if not self._evidence.counts(found, sender, request.incarnation):
            return False
        if self._evidence.lacks(sender, request.incarnation, request.last_index):
            return False
        return not founding.applies or founding.votes_for(sender, request.last_index)
