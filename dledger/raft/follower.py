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
from dledger.raft.raft_log import RaftLog
from dledger.raft.raft_state import RaftState
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication_evidence import MemberEvidence, ReplicationEvidence


class Follower:
    """The follower's share of replication (3.5)."""

    def __init__(
        self,
        *,
        incarnation: int,
        configurations: Configurations,
        raft_state: RaftState,
        raft_log: RaftLog,
        evidence: ReplicationEvidence,
        ready_builder: ReadyBuilder,
    ) -> None:
        self._incarnation = incarnation
        self._configurations = configurations
        self._raft_state = raft_state
        self._raft_log = raft_log
        self._evidence = evidence
        self._ready_builder = ready_builder

    def append(self, sender: str, request: AppendRequest, now: float) -> None:
        """Entries came. Raises :class:`~dledger.errors.PeerError` if they cannot be right."""
        raft_state = self._raft_state
        if not raft_state.accepts_leader(sender, request.term, now):
            return
        answer: AppendAccepted | AppendRejected | None
        if raft_state.follow(sender, request.term, now):
            answer = self._raft_log.accept(sender, request)
        else:
            answer = AppendRejected(raft_state.term, request.prev_index, -1, 0)
        if answer is not None:
            self._ready_builder.send(sender, answer)

    def durable(self) -> None:
        """More entries that match the leader's log are durable: tells the leader."""
        raft_state = self._raft_state
        if raft_state.leader is not None:
            match_index = self._raft_log.match_index
            answer = AppendAccepted(raft_state.term, match_index, self._incarnation)
            self._ready_builder.send(raft_state.leader, answer)

    def heartbeat(self, sender: str, beat: Heartbeat, now: float) -> None:
        """A heartbeat or notice came. Raises :class:`~dledger.errors.PeerError` likewise."""
        raft_state, raft_log = self._raft_state, self._raft_log
        if not raft_state.accepts_leader(sender, beat.term, now):
            return
        if raft_state.follow(sender, beat.term, now):
            if raft_log.trusts_leader(sender):
                raft_log.commit_to(min(beat.commit_index, raft_log.verified_index))
            if beat.round == NOTICE:
                return
            empty = raft_log.entry_cache.last_index < 0 and raft_state.knows(sender)
            if beat.evidence and (raft_log.proven or empty):
                self._evidence.learn(self._plausible(beat.evidence))
        held = (raft_log.match_index, raft_log.received_index)
        # A round that is answered prolongs a lease, and nobody waits for that of a stranger.
        answered = NOTICE if raft_state.led_by_stranger else beat.round
        echo = (answered, self._incarnation, raft_log.entry_cache.last_index)
        self._ready_builder.send(sender, HeartbeatResponse(raft_state.term, *held, *echo))

    def _plausible(self, held: tuple[MemberEvidence, ...]) -> list[MemberEvidence]:
        """Of what a leader tells, what it says of members."""
        found = self._configurations.current
        return [each for each in held if found.includes(each.node)]
