"""The Raft state of a node: term, vote, role, leader, and when the next election is due.

Term, vote, role and leader change only here. A changed term or vote is written by the same Ready
(Raft thesis 3.8). Messages that must wait for that write go through
:meth:`~dledger.raft.ready.ReadyBuilder.send_after_write`.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from dledger.config import RaftConfig
from dledger.errors import InvariantError, NotLeaderError, PeerError, SafetyProperty
from dledger.raft.health import HEALTHY, MemberHealth
from dledger.raft.leader import LeaderState
from dledger.raft.raft_log import RaftLog
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication_evidence import ReplicationEvidence
from dledger.raft.term_bound import TermBound

NOBODY = ""

ELECTION_BACKOFF_MAX = 64.0
"""Election timeouts between two campaigns of a node that was told that it was removed: about 20 to
40 s with the default of a broker."""
STRANGER_ELECTIONS = 3.0
"""A stranger is heard as a candidate or leader only after so many of the shortest election timeouts
without a member as leader. Then it is the members' turn for as long again, so that the stranger
keeps none of them from an election."""


class Chance(Protocol):
    """Draws election timeouts, as ``random.Random`` does."""

    def random(self) -> float:
        """A number from 0 to below 1."""


class Role(Enum):
    """What a node is in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class RaftState:
    """One node's; see the module."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        term: int,
        vote: str,
        raft_log: RaftLog,
        evidence: ReplicationEvidence,
        health: MemberHealth,
        ready_builder: ReadyBuilder,
        config: RaftConfig,
        rng: Chance,
        now: float,
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.term = term
        self.vote = vote
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.leader_state: LeaderState | None = None
        self.up: dict[str, bool] = {}
        """Peers with a working link, in order of connection."""
        self.elections = 0
        """Elections that this node has called; pre-votes do not count."""
        self.removed = False
        """Whether a majority of the others have said that this node was removed. Until it hears a
        leader it campaigns more and more seldom."""
        self.leader_heard_at = now
        self._led_at = now  # by a member; or a stranger was heard
        self._set_by_stranger = False  # whether `leader` is one
        self.terms = TermBound(now)
        self.election_at = now + config.election_seconds * (1 + rng.random())
        self._raft_log = raft_log
        self._evidence = evidence
        self._health = health
        self._ready_builder = ready_builder
        self._config = config
        self._rng = rng
        self._election_backoff = 1.0
        self.hurries = False
        """Whether the leader was lost, and no other was heard since."""
        self._hurry_seconds = config.lost_leader_seconds

    # --- waiting

    def wait(self, now: float) -> None:
        """The next election is a whole timeout away."""
        self.election_at = now + self._draw(self._config.election_seconds)

    def hasten_election(self, now: float) -> None:
        """The next election is close: the leader or an election is lost. If it comes too soon, two
        nodes may call one at the same moment, or before the others know that the leader is lost. So
        each failed try doubles the range from which the time is drawn, until a leader is heard.
        While leases count on this node, it elects nobody, not even itself.
        """
        self.hurries = True
        config, begins = self._config, now
        if config.lease_reads:
            begins = max(now, self.leader_heard_at + config.election_seconds)
        self.election_at = min(self.election_at, begins + self._draw(self._hurry_seconds))

    def _lead_again(self, before: LeaderState, now: float) -> None:
        """A leader that did not want to step down stands for election soon, if it is healthy. Those
        who followed it vote for it: see :meth:`~dledger.raft.election.Elections.vote_requested`.
        If it has told another to campaign, it does not disturb that election.
        """
        if self._health.own == HEALTHY and not before.leadership_transfer.ordered:
            self.hasten_election(now)

    def try_again(self, now: float) -> None:
        """An election, or the question for one, was lost; the leader was lost before."""
        self._hurry_seconds = min(2 * self._hurry_seconds, self._config.election_seconds)
        self.hasten_election(now)

    def _led(self) -> None:
        """There is a leader: the next loss is the first one again."""
        self.hurries = False
        self._hurry_seconds = self._config.lost_leader_seconds

    def back_off_elections(self) -> None:
        """From now on half as often as before."""
        self._election_backoff = min(2 * self._election_backoff, ELECTION_BACKOFF_MAX)

    def _draw(self, seconds: float) -> float:
        factor = self._health.election_delay_factor * self._election_backoff
        return seconds * factor * (1 + self._rng.random())

    def is_led(self, now: float) -> bool:
        """Whether a leader was heard so lately that nobody else may be elected (stickiness)."""
        if self.role is Role.LEADER:
            return True
        # A lease counts on this even when the link broke, or the node started again.
        known = self.leader is not None and not self._set_by_stranger
        return (
            known or self._config.lease_reads
        ) and now - self.leader_heard_at < self._config.election_seconds

    @property
    def sound(self) -> bool:
        """Whether this node's disk counts for it, or is its first one. A node that has lost the end
        of its log knows so itself (:mod:`store.recovery.lost_suffix`). What the log said of its
        disk may be gone as well, and the candidates may not know it.
        """
        found = self._raft_log.configurations.current
        return self._evidence.counts(found, self.node, self.incarnation)

    @property
    def led_by_stranger(self) -> bool:
        """Whether the leader is no member by this log: it keeps this node from no election."""
        return self._set_by_stranger

    # --- strangers

    def knows(self, node: str) -> bool:
        """Whether the node is a member, by what is committed here or by any entry behind that."""
        return self._raft_log.configurations.knows(node, self._raft_log.commit_index)

    @property
    def joins(self) -> bool:
        """Whether this node waits to be told who the members are."""
        return not self._raft_log.configurations.current.voters

    def accepts_strangers(self, now: float) -> bool:
        """Whether no member has led for so long that a stranger may lead."""
        election_delay_factor = STRANGER_ELECTIONS * self._config.election_seconds
        return self.role is not Role.LEADER and now - self._led_at >= election_delay_factor

    def stranger_heard(self, now: float) -> None:
        """A stranger changed this node's term, vote or leader: others have to wait."""
        self._led_at = now

    def accepts_leader(self, sender: str, term: int, now: float) -> bool:
        """Whether a message of a leader of that term is heard. A node also follows a leader by a
        configuration that it does not have yet. A member by its own log is always heard. A stranger
        is heard if this node voted for it, if no member has led for long, or if this node waits to
        be added to a group.

        Raises :class:`~dledger.errors.PeerError` if another node leads that term.
        """
        if self._follows(sender, term) or term < self.term:
            return True  # if its time is over, it is told so
        member = self.knows(sender)
        if term == self.term and self.leader not in (None, sender):
            if not (member and self._set_by_stranger):
                raise PeerError(f"{self.leader} and {sender} both lead term {term}")
            self._raft_log.reset_verified()  # all that came was a stranger's
        if member or self.joins:
            return True
        if term == self.term and sender in (self.leader, self.vote):
            return self.role is Role.FOLLOWER  # no stranger breaks off an election
        return self.accepts_strangers(now)

    def _follows(self, sender: str, term: int) -> bool:
        """Whether that is the leader of the term, and was a member when it began to lead."""
        return term == self.term and sender == self.leader and not self._set_by_stranger

    # --- changes

    def set_hard_state(self, term: int, vote: str) -> None:
        """Term and vote, and on their way to the disk."""
        if term < self.term:
            raise InvariantError(
                SafetyProperty.ONE_LEADER,
                f"{self.node}: term would go back from {self.term} to {term}",
            )
        write = self._ready_builder.write()
        write.hard_state = (term, vote)
        if term > self.term:
            self._raft_log.new_term(write.id)
        self.term = term
        self.vote = vote

    def adopt(self, sender: str, term: int, now: float) -> bool:
        """Follows nobody yet, in a later term that a peer tells of, or on the way there.

        Returns whether that term is reached. Raises :class:`~dledger.errors.PeerError` for a term
        that cannot be right.
        """
        raised = term - self.term
        if not self.joins:  # else it knows of no term at all
            self.terms.check(sender, self.term, term)
            raised = min(raised, self.terms.jump(self.term, now))
            self.terms.raised(raised, now)
        before = self.leader_state
        self.become_follower(self.term + raised, None, now)
        if before is not None:
            self._lead_again(before, now)  # the rival may not win its election
        return self.term == term

    def become_follower(self, term: int, leader: str | None, now: float) -> None:
        """Of ``leader``, where one is known."""
        if term > self.term:
            self.set_hard_state(term, NOBODY)
        self.role = Role.FOLLOWER
        self.leader = leader
        self._set_by_stranger = False
        if self.leader_state is not None:
            self._led_at = now
            self.leader_state.reads.drop()
            self.leader_state.remember()
            self.leader_state = None
        self.wait(now)

    def become_leader(self, now: float) -> None:
        """The election of this term is won."""
        self.role = Role.LEADER
        self.leader = self.node
        self._led()
        self.leader_state = LeaderState(
            node=self.node,
            incarnation=self.incarnation,
            term=self.term,
            raft_log=self._raft_log,
            ready_builder=self._ready_builder,
            config=self._config,
            connected=self.up,
            health=self._health,
            evidence=self._evidence,
            now=now,
        )

    def end_if_over(self, now: float) -> None:
        """A leadership that found itself over becomes none."""
        before = self.leader_state
        if before is not None and before.over:
            self.become_follower(self.term, None, now)
            self._lead_again(before, now)

    def follow(self, sender: str, term: int, now: float) -> bool:
        """Takes the sender of an append or heartbeat as leader, unless its term is over or too far
        ahead. Messages of a stranger do not delay an election. Raises
        :class:`~dledger.errors.PeerError` for a term that cannot be right.
        """
        if term < self.term:
            return False
        stranger = not (self._follows(sender, term) or self.knows(sender) or self.joins)
        reached = term == self.term or self.adopt(sender, term, now)
        if self.leader != sender or self.role is not Role.FOLLOWER:
            if stranger:
                self.stranger_heard(now)
            if not reached:
                return False
            self.become_follower(term, sender, now)
        self._set_by_stranger = stranger
        if not stranger:
            self.leader_heard_at = self._led_at = now
            self.removed = False
            self._election_backoff = 1.0
            self._led()
            self.wait(now)
        return True

    def lead(self) -> LeaderState:
        """The present leadership. Raises :class:`~dledger.errors.NotLeaderError`."""
        if self.leader_state is None:
            raise NotLeaderError(self.leader)
        return self.leader_state
