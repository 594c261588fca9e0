"""What a leader does beside replication: takes proposals, hears its followers, commits.

Made when a node becomes leader, dropped when it no longer is; the core looks at ``over`` after each
event. Counting majorities (``raft/quorum_tracker.py``), changing members
(``raft/configuration_change.py``), handing over (``raft/leadership_transfer.py``) and confirming
reads (``raft/leader_reads.py``) are parts of it, made and dropped with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dledger.config import RaftConfig
from dledger.errors import BusyError, ChangeRefusedError, PeerError, TransferringError
from dledger.raft.configuration import check_incarnation
from dledger.raft.configuration_change import Changes
from dledger.raft.leader_reads import LeaderReads
from dledger.raft.leadership_transfer import Handover
from dledger.raft.messages import AppendAccepted, AppendRejected, HeartbeatResponse
from dledger.raft.progress import Progress
from dledger.raft.quorum_tracker import Majorities
from dledger.raft.raft_log import LocalLog
from dledger.raft.ready import Outbox
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import Holding, Holdings
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry


class Leading:
    """One leadership, from the no-op of its term on."""

    def __init__(
        self,
        *,
        node: str,
        incarnation: int,
        term: int,
        local: LocalLog,
        outbox: Outbox,
        config: RaftConfig,
        connected: Mapping[str, bool],
        unfit: Mapping[str, bool],
        damaged: Mapping[str, bool],
        holdings: Holdings,
        now: float,
    ) -> None:
        self.over = False
        self.first_index = local.log.last_index + 1
        self._node = node
        self._term = term
        self._local = local
        self._outbox = outbox
        self._config = config
        self._holdings = holdings
        self._held_before = holdings.copy()
        self._quorum_check_at = now + config.election_seconds
        members = local.configurations.current.members
        self.replicator = Replicator(
            node=node,
            term=term,
            peers=[name for name in members if name != node],
            connected=connected,
            log=local.log,
            outbox=outbox,
            config=config,
            now=now,
        )
        self.majorities = Majorities(
            node=node,
            incarnation=incarnation,
            local=local,
            replicator=self.replicator,
            damaged=damaged,
            config=config,
        )
        self.handover = Handover(
            node=node,
            term=term,
            local=local,
            outbox=outbox,
            replicator=self.replicator,
            majorities=self.majorities,
            unfit=unfit,
            config=config,
            now=now,
        )
        self.changes = Changes(
            node=node,
            incarnation=incarnation,
            first_index=self.first_index,
            local=local,
            add=self._add,
            replicator=self.replicator,
            majorities=self.majorities,
            handover=self.handover,
            connected=connected,
            config=config,
            now=now,
        )
        self.reads = LeaderReads(
            node=node,
            term=term,
            first_index=self.first_index,
            local=local,
            outbox=outbox,
            replicator=self.replicator,
            majorities=self.majorities,
            handover=self.handover,
            held=self._held,
            config=config,
            now=now,
        )
        self._add(EntryKind.NO_OP, b"")
        self._tick_replicator(now)

    # --- proposals

    def check_may_propose(self) -> None:
        """Raises :class:`TransferringError` or :class:`BusyError`."""
        target = self.handover.target
        if target is not None:
            raise TransferringError(target)
        waiting = self._local.waiting_bytes()
        if waiting > self._config.uncommitted_bytes_max:
            raise BusyError(waiting, self._config.uncommitted_bytes_max)

    def propose(self, entry: Entry, now: float) -> None:
        """Adds the next entry: kept, written, and sent."""
        self._local.add(entry)
        self.replicator.replicate_all(self._local.commit_index, now)

    def _add(self, kind: EntryKind, body: bytes) -> int:
        log = self._local.log
        position = self._local.next_position(HEADER_SIZE + len(body))
        parts = (body,) if body else ()
        entry = build_entry(kind, log.last_index + 1, self._term, position, log.chain_crc, parts)
        self._local.add(entry)
        return entry.index

    # --- events

    def deadline(self) -> float:
        """When :meth:`tick` is due next."""
        due = min(self.replicator.deadline(), self._quorum_check_at)
        return due if self.handover.target is None else min(due, self.handover.ends_at)

    def tick(self, now: float) -> None:
        """Acts on what is due."""
        if now >= self._quorum_check_at:
            self._quorum_check_at = now + self._config.election_seconds
            if not self.majorities.heard_since(now - self._config.election_seconds):
                self.over = True
                return
            self._prefer(now)
        self.handover.give_up_if_late(now)
        self._tend(now)
        self._tick_replicator(now)

    def _tick_replicator(self, now: float) -> None:
        held: tuple[Holding, ...] = ()
        if self.replicator.beats(now):
            self.reads.next_round(now)
            held = self._held()
        self.replicator.tick(self._local.commit_index, now, held)

    def _held(self) -> tuple[Holding, ...]:
        """What heartbeats pass on."""
        return tuple(self.remember()) if self._holdings.kept else ()

    def remember(self) -> list[Holding]:
        """What the members hold, kept beyond this leadership."""
        held = self.majorities.holdings()
        self._holdings.learn(held)
        return held

    def durable(self, now: float) -> None:
        """The leader's own log became durable further on."""
        self.advance_commit(now)

    def accepted(self, sender: str, answer: AppendAccepted, now: float) -> None:
        """Raises :class:`PeerError` for entries that do not exist."""
        progress = self._heard(sender, answer.incarnation, answer.match_index)
        if progress is None:
            return
        if self.replicator.accepted(sender, answer.match_index, self._local.commit_index, now):
            self._moved(now)

    def heartbeat_answered(self, sender: str, answer: HeartbeatResponse, now: float) -> None:
        """Raises :class:`PeerError` for entries that do not exist."""
        if self._heard(sender, answer.incarnation, answer.match_index) is None:
            return
        moved = self.replicator.heartbeat_answered(sender, answer, self._local.commit_index, now)
        progress = self.replicator.peers[sender]
        if self._held_before.lacks(sender, answer.incarnation, answer.log_index):
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
            self.replicator.rejected(sender, answer, self._local.commit_index, now)

    def _heard(self, sender: str, incarnation: int, match_index: int) -> Progress | None:
        """What is known of a member that answers; None for who is none any more."""
        if match_index > self._local.log.last_index:
            raise PeerError(f"{sender} confirms entry {match_index} that does not exist")
        progress = self.replicator.peers.get(sender)
        if progress is not None and progress.incarnation != incarnation:
            check_incarnation(sender, incarnation)
            progress.incarnation = incarnation
            # All that it can have confirmed under another one is in this log.
            progress.needed_index = self._local.log.last_index
        return progress

    def _note_loss(self, progress: Progress) -> None:
        if progress.lost and progress.needed_index < progress.confirmed_index:
            progress.needed_index = self._local.log.last_index

    def _moved(self, now: float) -> None:
        self.advance_commit(now)
        if self.handover.target is not None:
            self.handover.go_on()

    # --- commit

    def advance_commit(self, now: float) -> None:
        """Only an entry of the present term commits by counting; older ones follow (figure 8)."""
        local = self._local
        if local.commit_index == local.log.last_index:
            return  # a majority has confirmed all there is before
        index = self.majorities.quorum_index()
        if index <= local.commit_index or local.log.term_at(index) != self._term:
            return
        before = local.commit_index
        local.commit_to(index)
        self.replicator.committed(index, now)
        if before < max(self.first_index, local.configurations.index) <= index:
            self._tend(now)

    # --- the members and the leader

    def _tend(self, now: float) -> None:
        if not self.changes.tend(now):
            self.handover.order_successor()
            self.over = True

    def begin_transfer(self, target: str, now: float) -> None:
        """Hands the leadership to a voter; see :class:`~dledger.raft.leadership_transfer.Handover`.

        Raises :class:`~dledger.errors.ChangeRefusedError`.
        """
        if target == self._node:
            raise ChangeRefusedError(f"{target} leads already")
        self.changes.changeable()
        self.handover.begin(target, now)

    def _prefer(self, now: float) -> None:
        preferred = self.handover.preferred(now)
        if preferred is not None:
            try:
                self.begin_transfer(preferred, now)
            except ChangeRefusedError:
                return  # a change is under way; there will be another occasion
