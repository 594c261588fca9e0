"""What a leader does beside replication: it takes proposals, hears its followers and commits.

It is made when a node becomes leader, and dropped when the node no longer leads; the core looks at
``over`` after each event. Its parts are made and dropped with it: counting majorities
(``raft/quorum_tracker.py``), changing members (``raft/configuration_change.py``), leadership
transfer (``raft/leadership_transfer.py``) and confirming reads (``raft/read_index.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from dledger.config import RaftConfig
from dledger.errors import BusyError, ChangeRefusedError, PeerError, TransferringError
from dledger.raft.configuration import check_incarnation
from dledger.raft.configuration_change import ConfigurationChanger
from dledger.raft.health import MemberHealth
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.messages import AppendAccepted, AppendRejected, HeartbeatResponse
from dledger.raft.progress import Progress
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.read_index import LeaderReads
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import MemberEvidence, ReplicationEvidence
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry

ANSWER_HEARTBEATS = 2
"""A leader that stood still gives the others so many intervals of heartbeats for an answer."""


class LeaderState:
    """One leadership, from the no-op of its term on."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        term: int,
        raft_log: RaftLog,
        ready_builder: ReadyBuilder,
        config: RaftConfig,
        connected: Mapping[str, bool],
        health: MemberHealth,
        evidence: ReplicationEvidence,
        now: float,
    ) -> None:
        self.over = False
        self.first_index = raft_log.entry_cache.last_index + 1
        self._node = node
        self._term = term
        self._raft_log = raft_log
        self._config = config
        self._evidence = evidence
        self._evidence_before = evidence.copy()
        self._quorum_check_at = now + config.election_seconds
        self._check_put_off_at = now
        self._ticked_at = now
        members = raft_log.configurations.current.members
        self.replicator = Replicator(
            term=term,
            peers=[name for name in members if name != node],
            connected=connected,
            log=raft_log.entry_cache,
            ready_builder=ready_builder,
            config=config,
            now=now,
        )
        self.quorum_tracker = QuorumTracker(
            node=node,
            incarnation=incarnation,
            raft_log=raft_log,
            replicator=self.replicator,
            health=health,
            evidence=evidence,
            config=config,
        )
        self.leadership_transfer = LeadershipTransfer(
            node=node,
            term=term,
            raft_log=raft_log,
            ready_builder=ready_builder,
            replicator=self.replicator,
            quorum_tracker=self.quorum_tracker,
            health=health,
            config=config,
            now=now,
        )
        self.configuration_changer = ConfigurationChanger(
            node=node,
            incarnation=incarnation,
            first_index=self.first_index,
            raft_log=raft_log,
            add=self._add,
            replicator=self.replicator,
            quorum_tracker=self.quorum_tracker,
            leadership_transfer=self.leadership_transfer,
            connected=connected,
            config=config,
            now=now,
        )
        self.reads = LeaderReads(
            node=node,
            term=term,
            first_index=self.first_index,
            raft_log=raft_log,
            ready_builder=ready_builder,
            replicator=self.replicator,
            quorum_tracker=self.quorum_tracker,
            leadership_transfer=self.leadership_transfer,
            evidence=self._current_evidence,
            config=config,
            now=now,
        )
        self._add(EntryKind.NO_OP, b"")
        self._tick_replicator(now)

    # --- proposals

    def check_may_propose(self) -> None:
        """Raises :class:`TransferringError` or :class:`BusyError`."""
        target = self.leadership_transfer.target
        if target is not None:
            raise TransferringError(target)
        waiting = self._raft_log.waiting_bytes()
        if waiting > self._config.uncommitted_bytes_max:
            raise BusyError(waiting, self._config.uncommitted_bytes_max)

    def propose(self, entry: Entry, now: float) -> None:
        """Adds the next entry: kept, written, and sent."""
        self._raft_log.add(entry)
        self.replicator.replicate_all(self._raft_log.commit_index, now)

    def _add(self, kind: EntryKind, body: bytes) -> int:
        log = self._raft_log.entry_cache
        position = self._raft_log.next_position(HEADER_SIZE + len(body))
        parts = (body,) if body else ()
        entry = build_entry(kind, log.last_index + 1, self._term, position, log.chain_crc, parts)
        self._raft_log.add(entry)
        return entry.index

    # --- events

    def deadline(self) -> float:
        """When :meth:`tick` is due next."""
        due = self.replicator.due_at
        due = min(due, self._quorum_check_at)
        if self.leadership_transfer.target is not None:
            due = min(due, self.leadership_transfer.ends_at)
        return due

    def tick(self, now: float) -> None:
        """Acts on what is due."""
        self._put_off_check_if_late(now)
        if now >= self._quorum_check_at:
            self._quorum_check_at = now + self._config.election_seconds
            if not self.quorum_tracker.heard_since(now - self._config.election_seconds):
                self.over = True
                return
            self._prefer(now)
        self.leadership_transfer.give_up_if_late(now)
        self._advance_change(now)
        self._tick_replicator(now)

    def _put_off_check_if_late(self, now: float) -> None:
        """Gives the heartbeats of a late tick time for their answers before the next check: a node
        that stood still has asked nobody meanwhile.

        Once, until a majority has answered: who is cut off steps down, however late its ticks are.
        Nor after two election timeouts: by then the others have elected somebody.
        """
        stood_still, self._ticked_at = now - self._ticked_at, now
        election_seconds = self._config.election_seconds
        if not election_seconds / 2 < stood_still < 2 * election_seconds:
            return
        if self.quorum_tracker.heard_since(self._check_put_off_at):
            self._check_put_off_at = now
            answered_at = now + ANSWER_HEARTBEATS * self._config.heartbeat_seconds
            self._quorum_check_at = max(self._quorum_check_at, answered_at)

    def _tick_replicator(self, now: float) -> None:
        evidence: tuple[MemberEvidence, ...] = ()
        if self.replicator.beats(now):
            self.reads.next_round(now)
            evidence = self._current_evidence()
        self.replicator.tick(self._raft_log.commit_index, now, evidence)

    def _current_evidence(self) -> tuple[MemberEvidence, ...]:
        """What heartbeats pass on."""
        return tuple(self.remember()) if self._evidence.kept else ()

    def remember(self) -> list[MemberEvidence]:
        """What the members hold, kept beyond this leadership."""
        evidence = self.quorum_tracker.evidence()
        self._evidence.learn(evidence)
        return evidence

    def durable(self, now: float) -> None:
        """The leader's own log became durable further on."""
        self._moved(now)

    def accepted(self, sender: str, answer: AppendAccepted, now: float) -> None:
        """Raises :class:`PeerError` for entries that do not exist."""
        progress = self._heard(sender, answer.incarnation, answer.match_index)
        if progress is None:
            return
        if self.replicator.accepted(sender, answer.match_index, self._raft_log.commit_index, now):
            self._moved(now)

    def heartbeat_answered(self, sender: str, answer: HeartbeatResponse, now: float) -> None:
        """Raises :class:`PeerError` for entries that do not exist."""
        if self._heard(sender, answer.incarnation, answer.match_index) is None:
            return
        moved = self.replicator.heartbeat_answered(sender, answer, self._raft_log.commit_index, now)
        progress = self.replicator.peers[sender]
        if self._evidence_before.lacks(sender, answer.incarnation, answer.log_index):
            progress.lost = True  # what it confirmed to an earlier leader is not there any more
        self._note_loss(progress)
        if answer.round > progress.round:
            progress.round = min(answer.round, self.replicator.round)
            self.reads.serve(now)
        if moved:
            self._moved(now)

    def rejected(self, sender: str, answer: AppendRejected, now: float) -> None:
        """The logs do not meet there."""
        if sender in self.replicator.peers:
            self.replicator.rejected(sender, answer, self._raft_log.commit_index, now)

    def _heard(self, sender: str, incarnation: int, match_index: int) -> Progress | None:
        """The progress of the follower that answers; None if it is no member any more."""
        if match_index > self._raft_log.entry_cache.last_index:
            raise PeerError(f"{sender} confirms entry {match_index} that does not exist")
        progress = self.replicator.peers.get(sender)
        if progress is not None and progress.incarnation != incarnation:
            check_incarnation(sender, incarnation)
            progress.incarnation = incarnation
            # This log has everything that it can have confirmed on another disk.
            progress.needed_index = self._raft_log.entry_cache.last_index
        return progress

    def _note_loss(self, progress: Progress) -> None:
        if progress.lost and progress.needed_index < progress.confirmed_index:
            progress.needed_index = self._raft_log.entry_cache.last_index

    def _moved(self, now: float) -> None:
        self.advance_commit(now)
        if self.leadership_transfer.target is not None:
            self.leadership_transfer.go_on()

    # --- commit

    def advance_commit(self, now: float) -> None:
        """Only an entry of the present term commits by counting; older ones follow (figure 8)."""
        raft_log = self._raft_log
        if raft_log.commit_index == raft_log.entry_cache.last_index:
            return  # a majority has confirmed all there is before
        index = self.quorum_tracker.quorum_index()
        if index <= raft_log.commit_index or raft_log.entry_cache.term_at(index) != self._term:
            return
        before = raft_log.commit_index
        raft_log.commit_to(index)
        self.replicator.committed(index, now)
        if before < max(self.first_index, raft_log.configurations.index) <= index:
            self._advance_change(now)

    # --- the members and the leader

    def _advance_change(self, now: float) -> None:
        if not self.configuration_changer.advance_change(now):
            self.leadership_transfer.order_successor()
            self.over = True

    def begin_transfer(self, target: str, now: float) -> None:
        """Hands the leadership to a voter; see
        :class:`~dledger.raft.leadership_transfer.LeadershipTransfer`.

        Raises :class:`~dledger.errors.ChangeRefusedError`.
        """
        if target == self._node:
            raise ChangeRefusedError(f"{target} leads already")
        self.configuration_changer.changeable()
        self.leadership_transfer.begin(target, now)

    def _prefer(self, now: float) -> None:
        preferred = self.leadership_transfer.preferred(now)
        if preferred is not None:
            try:
                self.begin_transfer(preferred, now)
            except ChangeRefusedError:
                return  # a change is under way; there will be another occasion
