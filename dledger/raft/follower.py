"""What a follower does with the entries and heartbeats of its leader, and what it answers."""

from __future__ import annotations

from dledger.raft.configuration import Configurations
from dledger.raft.messages import (
    NOTICE,
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
)
from dledger.raft.raft_log import LocalLog
from dledger.raft.raft_state import Standing
from dledger.raft.ready import Outbox
from dledger.raft.replication_evidence import Holding, Holdings


class Follower:
    """The follower's share of replication (3.5)."""

    def __init__(
        self,
        *,
        incarnation: int,
        configurations: Configurations,
        standing: Standing,
        local: LocalLog,
        holdings: Holdings,
        outbox: Outbox,
    ) -> None:
        self._incarnation = incarnation
        self._configurations = configurations
        self._standing = standing
        self._local = local
        self._holdings = holdings
        self._outbox = outbox

    def append(self, sender: str, request: AppendRequest, now: float) -> None:
        """Entries came. Raises :class:`~dledger.errors.PeerError` if they cannot be right."""
        standing = self._standing
        if not standing.hears_leader(sender, request.term, now):
            return
        answer: AppendAccepted | AppendRejected | None
        if standing.follow(sender, request.term, now):
            answer = self._local.accept(sender, request)
        else:
            answer = AppendRejected(standing.term, request.prev_index, -1, 0)
        if answer is not None:
            self._outbox.send(sender, answer)

    def durable(self) -> None:
        """More of what is known to match the leader's log is durable: it is told so."""
        standing = self._standing
        if standing.leader is not None:
            match_index = self._local.match_index
            answer = AppendAccepted(standing.term, match_index, self._incarnation)
            self._outbox.send(standing.leader, answer)

    def heartbeat(self, sender: str, beat: Heartbeat, now: float) -> None:
        """A heartbeat or notice came. Raises :class:`~dledger.errors.PeerError` likewise."""
        standing, local = self._standing, self._local
        if not standing.hears_leader(sender, beat.term, now):
            return
        if standing.follow(sender, beat.term, now):
            if local.believes(sender):
                local.commit_to(min(beat.commit_index, local.verified_index))
            if beat.round == NOTICE:
                return
            empty = local.log.last_index < 0 and standing.knows(sender)
            if beat.held and (local.proven or empty):
                self._holdings.learn(self._plausible(beat.held))
        held = (local.match_index, local.received_index)
        echo = (beat.round, self._incarnation, local.log.last_index)
        self._outbox.send(sender, HeartbeatResponse(standing.term, *held, *echo))

    def _plausible(self, held: tuple[Holding, ...]) -> list[Holding]:
        """Of what a leader tells, what it says of members."""
        found = self._configurations.current
        return [each for each in held if found.includes(each.node)]
