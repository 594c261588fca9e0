"""Handing the leadership over in order (Raft thesis 3.10).

No proposals are taken from then on; once the target holds all and all is committed, it is told to
campaign at once. If it does not lead within an election timeout, this leader goes on.
"""

from __future__ import annotations

from dledger.config import RaftConfig
from dledger.errors import ChangeRefusedError
from dledger.raft.health import MemberHealth
from dledger.raft.messages import TimeoutNow
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication import Replicator

PREFERRED_PAUSE = 10.0
"""Election timeouts between two tries to hand over to the preferred leader."""


class LeadershipTransfer:
    """Of one leadership."""

    def __init__(
        self,
        *,
        node: str,
        term: int,
        raft_log: RaftLog,
        ready_builder: ReadyBuilder,
        replicator: Replicator,
        quorum_tracker: QuorumTracker,
        health: MemberHealth,
        config: RaftConfig,
        now: float,
    ) -> None:
        self.target: str | None = None
        """To whom the leadership is being handed."""
        self.ends_at = 0.0
        """When that is given up."""
        self.ordered = False
        """Whether anybody was told to campaign. That may arrive at any time of the term, and who
        obeys is elected by voters that heard this leader a moment ago: it has no lease any more."""
        self._node = node
        self._term = term
        self._raft_log = raft_log
        self._ready_builder = ready_builder
        self._replicator = replicator
        self._quorum_tracker = quorum_tracker
        self._health = health
        self._config = config
        self._sent = False
        self._prefer_at = now + config.election_seconds

    def begin(self, target: str, now: float) -> None:
        """Hands over to a voter. Raises :class:`~dledger.errors.ChangeRefusedError`."""
        progress = self._replicator.peers.get(target)
        if progress is None or target not in self._quorum_tracker.configuration.voters:
            raise ChangeRefusedError(f"{target} is not a voter")
        if not progress.connected or not self._quorum_tracker.counts(target):
            raise ChangeRefusedError(f"{target} cannot be reached, or is being refilled")
        self.target = target
        self._sent = False
        self.ends_at = now + self._config.election_seconds
        self.go_on()

    def go_on(self) -> None:
        """Once all is committed and with the target: nobody's proposal is left in the air."""
        target, last = self.target, self._raft_log.entry_cache.last_index
        if target is None or self._sent or self._raft_log.commit_index < last:
            return
        progress = self._replicator.peers.get(target)
        if progress is not None and progress.match_index == last:
            self._sent = self.ordered = True
            self._ready_builder.send(target, TimeoutNow(self._term))

    def give_up_if_late(self, now: float) -> None:
        """It did not take over: this leader goes on."""
        if self.target is not None and now >= self.ends_at:
            self.target = None

    def order_successor(self) -> None:
        """Whoever holds most goes on, now that this leader is no member any more."""
        voters = [
            (progress.match_index, peer)
            for peer, progress in self._replicator.peers.items()
            if progress.connected
            and peer in self._quorum_tracker.configuration.voters
            and self._quorum_tracker.counts(peer)
        ]
        if voters:
            self.ordered = True
            self._ready_builder.send(max(voters)[1], TimeoutNow(self._term))

    def preferred(self, now: float) -> str | None:
        """The preferred leader if it is another one, healthy, up to date, and not tried lately."""
        preferred = self._config.preferred_leader
        if preferred in ("", self._node) or now < self._prefer_at or self.target:
            return None
        voters = self._quorum_tracker.configuration.voters
        if preferred not in voters or not self._health.is_healthy(preferred):
            return None
        if not self._quorum_tracker.keeps_up(preferred):
            return None
        self._prefer_at = now + PREFERRED_PAUSE * self._config.election_seconds
        return preferred
