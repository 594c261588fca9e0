"""Elections as one node takes part in them (Raft thesis 3.4, 3.6.1, 9.6): it asks, grants, counts.

A pre-vote asks whether a vote would be granted and changes no term. A vote, the candidate's own
included, leaves only after it is durable (3.8). A node on another disk than the one that is noted
for it neither votes nor campaigns. For whom an empty one votes, and whose vote it counts, says
``raft/bootstrap.py``: it may be a voter that lost what it had confirmed. Nobody votes for, or
counts the vote of, a log that ends before what its disk is known to have held
(``raft/replication_evidence.py``).
"""

from __future__ import annotations

from dledger.raft.bootstrap import Founding
from dledger.raft.configuration import Configurations, check_incarnation
from dledger.raft.messages import VoteRequest, VoteResponse
from dledger.raft.quorum import VoteResult, joint_vote_result
from dledger.raft.raft_log import LocalLog
from dledger.raft.raft_state import NOBODY, Role, Standing
from dledger.raft.ready import Outbox
from dledger.raft.replication_evidence import Holdings
from dledger.raft.term_bound import TERM_MAX


class Elections:
    """See the module."""

    def __init__(
        self, *, standing: Standing, local: LocalLog, holdings: Holdings, outbox: Outbox
    ) -> None:
        self.campaigns = True
        """Whether this node ever asks for votes."""
        self.votes = True
        """Whether it ever grants one."""
        self._standing = standing
        self._local = local
        self._log = local.log
        self._holdings = holdings
        self._founding = Founding(standing=standing, local=local, holdings=holdings)
        self._configurations: Configurations = local.configurations
        self._outbox = outbox
        self._votes: dict[str, bool] = {}
        self._own_vote_write: int | None = None

    # --- asking

    @property
    def may_campaign(self) -> bool:
        """A voter, or one that is to be none as soon as an entry is committed which may not be yet:
        if its log is the longest, nobody else can be elected (thesis 4.2.2)."""
        standing, found = self._standing, self._configurations.current
        committed = self._configurations.at(self._local.commit_index)
        voter = found.votes(standing.node) or committed.votes(standing.node)
        return voter and found.trusts(standing.node, standing.incarnation)

    def due(self, now: float) -> None:
        """Nobody was heard for an election timeout."""
        if self.campaigns and self.may_campaign and self._standing.term < TERM_MAX:
            if self._standing.dismissed:
                self._standing.campaign_seldom()
            self.campaign(now, pre_vote=True)
        else:
            self._standing.wait(now)

    def campaign(self, now: float, *, pre_vote: bool, ordered: bool = False) -> None:
        """Asks all others for their votes; ``ordered`` if the leader itself wants it."""
        standing = self._standing
        standing.leader = None
        self._votes = {}
        standing.wait(now)
        self._own_vote_write = None
        if pre_vote:
            standing.role = Role.PRE_CANDIDATE
            request = self._request(standing.term + 1, pre_vote=True, ordered=False)
            for peer in self._peers():
                self._outbox.send(peer, request)
            self._count(standing.node, now, granted=True)
            return
        standing.role = Role.CANDIDATE
        standing.set_hard_state(standing.term + 1, standing.node)
        request = self._request(standing.term, pre_vote=False, ordered=ordered)
        for peer in self._peers():
            self._outbox.send_after_write(peer, request)
        self._own_vote_write = self._outbox.write().id

    def _request(self, term: int, *, pre_vote: bool, ordered: bool) -> VoteRequest:
        log, incarnation = self._log, self._standing.incarnation
        return VoteRequest(term, log.last_index, log.last_term, pre_vote, ordered, incarnation)

    def _peers(self) -> list[str]:
        node = self._standing.node
        return [name for name in self._configurations.current.members if name != node]

    # --- counting

    def written(self, write_id: int, now: float) -> None:
        """That write is durable: the candidate's own vote counts once it is."""
        if self._own_vote_write is not None and write_id >= self._own_vote_write:
            self._own_vote_write = None
            self._count(self._standing.node, now, granted=True)

    def answered(self, sender: str, answer: VoteResponse, now: float) -> None:
        """A voter says yes or no."""
        standing = self._standing
        if not standing.knows(sender):
            return  # it was not asked
        check_incarnation(sender, answer.incarnation)
        self._founding.meet(sender, answer.incarnation, answer.log_index)
        if not answer.granted and answer.term > standing.term:
            standing.adopt(sender, answer.term, now)
            return
        asked = standing.term + 1 if answer.pre_vote else standing.term
        if answer.granted and answer.term != asked:
            return
        trusted = self._configurations.current.trusts(sender, answer.incarnation)
        if self._holdings.lacks(sender, answer.incarnation, answer.log_index):
            trusted = False
        if self._founding.applies and not self._founding.begins_with(sender):
            trusted = False
        if answer.pre_vote == (standing.role is Role.PRE_CANDIDATE):
            self._count(sender, now, granted=answer.granted and trusted)

    def _count(self, voter: str, now: float, *, granted: bool) -> None:
        standing = self._standing
        if standing.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            return
        self._votes[voter] = granted or self._votes.get(voter, False)  # no vote is taken back
        # Who cannot be reached will not vote: do not wait for it through a whole timeout.
        silent = {peer: False for peer in self._peers() if peer not in standing.up}
        quorums = self._configurations.current.quorums
        result = joint_vote_result(quorums, {**silent, **self._votes})
        if result is VoteResult.LOST:
            split = standing.role is Role.CANDIDATE
            standing.become_follower(standing.term, None, now)
            if split:
                standing.hurry(now)
        elif result is VoteResult.WON:
            if standing.role is Role.PRE_CANDIDATE:
                self.campaign(now, pre_vote=False)
            else:
                standing.become_leader(now)

    # --- granting

    def asked(self, sender: str, request: VoteRequest, now: float) -> None:
        """A candidate asks for this node's vote, or whether it would get it.

        It may be a voter by an entry that is not here yet. Its log must end behind this one then,
        and it has its turn only where no member leads for long.
        """
        standing, log = self._standing, self._log
        check_incarnation(sender, request.incarnation)
        stranger = not standing.knows(sender)
        if not stranger:
            self._founding.meet(sender, request.incarnation, request.last_index)
        ordered = request.ordered and not stranger
        if (
            request.term < standing.term
            or (standing.is_led(now) and not ordered)
            or (stranger and not standing.hears_strangers(now))
        ):
            self._refuse(sender, request)
            return
        theirs, ours = (request.last_term, request.last_index), (log.last_term, log.last_index)
        up_to_date = theirs > ours if stranger else theirs >= ours
        willing = up_to_date and self._may_vote(sender, request)
        standing.terms.check(sender, standing.term, request.term)
        if request.pre_vote:
            if willing and (request.term > standing.term or standing.vote in (NOBODY, sender)):
                incarnation, last_index = standing.incarnation, log.last_index
                answer = VoteResponse(request.term, True, True, incarnation, last_index)
                self._outbox.send(sender, answer)
            else:
                self._refuse(sender, request)
            return
        if stranger and not willing:
            self._refuse(sender, request)  # its term is nobody else's yet
            return
        if stranger:
            standing.stranger_heard(now)
        reached = request.term == standing.term or standing.adopt(sender, request.term, now)
        if reached and willing and standing.vote in (NOBODY, sender):
            standing.wait(now)
            standing.set_hard_state(standing.term, sender)
            incarnation, last_index = standing.incarnation, log.last_index
            answer = VoteResponse(standing.term, True, False, incarnation, last_index)
            self._outbox.send_after_write(sender, answer)
        else:
            self._refuse(sender, request)

    def _refuse(self, sender: str, request: VoteRequest) -> None:
        standing, pre_vote = self._standing, request.pre_vote
        held = (standing.incarnation, self._log.last_index)
        self._outbox.send(sender, VoteResponse(standing.term, False, pre_vote, *held))

    def _may_vote(self, sender: str, request: VoteRequest) -> bool:
        """Not on a disk that may have lost what was confirmed, nor for somebody on such a disk."""
        found, founding = self._configurations.current, self._founding
        if not self.votes:
            return False
        if not found.trusts(self._standing.node, self._standing.incarnation):
            return False
        if not found.trusts(sender, request.incarnation):
            return False
        if self._holdings.lacks(sender, request.incarnation, request.last_index):
            return False
        return not founding.applies or founding.votes_for(sender, request.last_index)
