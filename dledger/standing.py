"""What a node is in its term, and how long it waits before it wants another one.

Term, vote, role and leader change here and nowhere else. A term and a vote are on their way to the
disk in the same bundle in which they change (Raft thesis 3.8); what may leave only after that is
:meth:`~dledger.effects.Outbox.send_after_write`.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from dledger.config import RaftConfig
from dledger.effects import Outbox
from dledger.errors import InvariantError, NotLeaderError
from dledger.holdings import Holdings
from dledger.leading import Leading
from dledger.locallog import LocalLog

NOBODY = ""

SELDOM_MAX = 64.0
"""So many election timeouts lie between two campaigns of a node that was told that it was removed:
with the usual one 40 to 80 s."""


class Role(Enum):
    """What a node is in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Standing:
    """One node's; see the module."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        term: int,
        vote: str,
        local: LocalLog,
        holdings: Holdings,
        outbox: Outbox,
        config: RaftConfig,
        rng: Random,
        now: float,
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.term = term
        self.vote = vote
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.leading: Leading | None = None
        self.up: dict[str, bool] = {}
        """Peers with a working link, in order of connection."""
        self.unfit: dict[str, bool] = {}
        """Peers that said that they should not lead."""
        self.damaged: dict[str, bool] = {}
        """Members, this node among them, whose log has damaged entries."""
        self.patience = 1.0
        """How many times as long as usual this node waits before it campaigns."""
        self.dismissed = False
        """Whether a majority of the others have said that this node was removed; see
        ``removal.py``. Until it hears a leader it campaigns more and more seldom."""
        self.leader_heard_at = now
        self.election_at = now + config.election_seconds * (1 + rng.random())
        self._local = local
        self._holdings = holdings
        self._outbox = outbox
        self._config = config
        self._rng = rng
        self._seldom = 1.0

    # --- waiting

    def wait(self, now: float) -> None:
        """The next election is a whole timeout away."""
        self.election_at = now + self._draw(self._config.election_seconds)

    def hurry(self, now: float) -> None:
        """The next election is close: the leader, or an election, is lost."""
        self.election_at = min(self.election_at, now + self._draw(self._config.lost_leader_seconds))

    def campaign_seldom(self) -> None:
        """From now on half as often as before."""
        self._seldom = min(2 * self._seldom, SELDOM_MAX)

    def _draw(self, seconds: float) -> float:
        return seconds * self.patience * self._seldom * (1 + self._rng.random())

    def is_led(self, now: float) -> bool:
        """Whether a leader was heard so lately that nobody else may be elected (stickiness)."""
        if self.role is Role.LEADER:
            return True
        # A lease counts on this even when the link broke, or the node started anew.
        known = self.leader is not None or self._config.lease_reads
        return known and now - self.leader_heard_at < self._config.election_seconds

    # --- changes

    def set_hard_state(self, term: int, vote: str) -> None:
        """Term and vote, and on their way to the disk."""
        if term < self.term:
            raise InvariantError(f"{self.node}: term would go back from {self.term} to {term}")
        write = self._outbox.write()
        write.hard_state = (term, vote)
        if term > self.term:
            self._local.new_term(write.id)
        self.term = term
        self.vote = vote

    def become_follower(self, term: int, leader: str | None, now: float) -> None:
        """Of ``leader``, where one is known."""
        if term > self.term:
            self.set_hard_state(term, NOBODY)
        self.role = Role.FOLLOWER
        self.leader = leader
        if self.leading is not None:
            self.leading.reads.drop()
            self.leading.remember()
            self.leading = None
        self.wait(now)

    def become_leader(self, now: float) -> None:
        """The election of this term is won."""
        self.role = Role.LEADER
        self.leader = self.node
        self.leading = Leading(
            node=self.node,
            incarnation=self.incarnation,
            term=self.term,
            local=self._local,
            outbox=self._outbox,
            config=self._config,
            connected=self.up,
            unfit=self.unfit,
            damaged=self.damaged,
            holdings=self._holdings,
            now=now,
        )

    def end_if_over(self, now: float) -> None:
        """A leadership that found itself over becomes none."""
        if self.leading is not None and self.leading.over:
            self.become_follower(self.term, None, now)

    def follow(self, sender: str, term: int, now: float) -> bool:
        """Takes the sender of an append or heartbeat as leader, unless its term is over."""
        if term < self.term:
            return False
        if term == self.term and self.leader not in (None, sender):
            raise InvariantError(f"{self.leader} and {sender} both lead term {term}")
        if term > self.term or self.leader != sender or self.role is not Role.FOLLOWER:
            self.become_follower(term, sender, now)
        self.leader_heard_at = now
        self.dismissed = False
        self._seldom = 1.0
        self.wait(now)
        return True

    def lead(self) -> Leading:
        """The present leadership. Raises :class:`~dledger.errors.NotLeaderError`."""
        if self.leading is None:
            raise NotLeaderError(self.leader)
        return self.leading
