"""ReadIndex: how a leader knows that its commit index is the newest (Raft thesis 6.4).

A read must see everything that was committed when it was asked. Its index is the commit index of
that moment. The index is right if the leader still led then, that is, if a majority answers a
heartbeat that was sent later. One round of heartbeats serves all reads that were asked before it
was sent; reads that come meanwhile wait for the next round. No disk is involved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from dledger.config import RaftConfig
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.messages import ReadResponse
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import MemberEvidence

READS_WAITING_MAX = 64


class ReadAsked(NamedTuple):
    """Who asked, by its own number; ``read_from`` is the entry that it must apply first."""

    asker: str
    number: int
    read_from: int


class ReadRounds:
    """The reads that a leader has not confirmed yet, by the round that will."""

    def __init__(self) -> None:
        self._gathering: list[ReadAsked] = []
        self._under_way: deque[tuple[int, list[ReadAsked]]] = deque()

    def add(self, asked: ReadAsked) -> bool:
        """Takes a read. Returns whether a round must begin for it now. A read is dropped if its
        asker has :data:`READS_WAITING_MAX` in the next round: a node has one question open at a
        time, and asks again if it gets no answer.
        """
        gathering = self._gathering
        if len(gathering) >= READS_WAITING_MAX:
            others = sum(1 for each in gathering if each.asker == asked.asker)
            if others >= READS_WAITING_MAX:
                return False
        gathering.append(asked)
        return not self._under_way

    @property
    def open(self) -> bool:
        """Whether a round is under way that reads wait for; else none wait at all."""
        return bool(self._under_way)

    @property
    def gathering(self) -> bool:
        """Whether reads wait for the next round."""
        return bool(self._gathering)

    def begun(self, number: int) -> None:
        """The round of that number is about to be sent."""
        if self._gathering:
            self._under_way.append((number, self._gathering))
            self._gathering = []

    def confirmed(self, number: int) -> list[ReadAsked]:
        """A majority answered that round or a later one: these reads may be served."""
        served: list[ReadAsked] = []
        while self._under_way and self._under_way[0][0] <= number:
            served += self._under_way.popleft()[1]
        return served

    def drop(self) -> list[ReadAsked]:
        """All that is open: the leadership is over."""
        dropped = [asked for _, reads in self._under_way for asked in reads]
        dropped += self._gathering
        self._under_way.clear()
        self._gathering = []
        return dropped


class LeaderReads:
    """The reads that one leadership confirms, by rounds of heartbeats or by its lease."""

    def __init__(
        self,
        *,
        node: str,
        term: int,
        first_index: int,
        raft_log: RaftLog,
        ready_builder: ReadyBuilder,
        replicator: Replicator,
        quorum_tracker: QuorumTracker,
        leadership_transfer: LeadershipTransfer,
        evidence: Callable[[], tuple[MemberEvidence, ...]],
        config: RaftConfig,
        now: float,
    ) -> None:
        """``first_index`` is the no-op of the term: no read is answered from before it.
        ``evidence`` is what a heartbeat passes on.
        """
        self._node = node
        self._term = term
        self._first_index = first_index
        self._raft_log = raft_log
        self._ready_builder = ready_builder
        self._replicator = replicator
        self._quorum_tracker = quorum_tracker
        self._handover = leadership_transfer
        self._evidence = evidence
        self._config = config
        self._rounds = ReadRounds()
        self._round_sent_at: dict[int, float] = {}
        self._lease_until = now

    def ask(self, asker: str, number: int, now: float) -> None:
        """A read index is wanted; the answer leaves once it is confirmed."""
        asked = ReadAsked(asker, number, max(self._raft_log.commit_index, self._first_index))
        leased = self._config.lease_reads and now < self._lease_until
        if leased and not self._handover.ordered:
            self._answer(asked)
        elif self._rounds.add(asked):
            self._begin_round(now)

    def next_round(self, now: float) -> None:
        """A round of heartbeats is about to be sent: it confirms what was asked so far."""
        self._replicator.round += 1
        self._rounds.begun(self._replicator.round)
        if self._config.lease_reads:
            self._round_sent_at[self._replicator.round] = now

    def serve(self, now: float) -> None:
        """A member answered a round: confirms what a majority has answered."""
        if not (self._rounds.open or self._config.lease_reads):
            return
        confirmed = self._quorum_tracker.confirmed_round()
        for asked in self._rounds.confirmed(confirmed):
            self._answer(asked)
        if self._config.lease_reads:
            self._extend_lease(confirmed)
        if self._rounds.gathering:
            self._begin_round(now)

    def drop(self) -> None:
        """The leadership is over: nobody's read is confirmed any more."""
        for asked in self._rounds.drop():
            if asked.asker == self._node:
                self._ready_builder.read_index(asked.number, None)
            else:
                self._ready_builder.send(asked.asker, ReadResponse(self._term, asked.number, -1))

    def _begin_round(self, now: float) -> None:
        self.next_round(now)
        if self._replicator.beats_soon(now):
            self._replicator.beat(self._raft_log.commit_index, now, self._evidence())
        else:
            self._replicator.ask_all(self._raft_log.commit_index)
        self.serve(now)

    def _extend_lease(self, confirmed: int) -> None:
        """Who answered a round sent then elects nobody for an election timeout from then on."""
        known = [number for number in self._round_sent_at if number <= confirmed]
        if known:
            valid = self._config.election_seconds * (1 - self._config.lease_drift)
            self._lease_until = self._round_sent_at[known[-1]] + valid
            for number in known:
                del self._round_sent_at[number]

    def _answer(self, asked: ReadAsked) -> None:
        if asked.asker == self._node:
            self._ready_builder.read_index(asked.number, asked.read_from)
        else:
            self._ready_builder.send(
                asked.asker, ReadResponse(self._term, asked.number, asked.read_from)
            )
