"""The leader's side of log replication: what to send to whom, and what each one holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dledger.config import RaftConfig
from dledger.raft.entry_cache import EntryCache
from dledger.raft.messages import (
    NOTICE,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
)
from dledger.raft.progress import PROBE, REPLICATE, Progress
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication_evidence import MemberEvidence
from store.log.entry import Entry


class Replicator:
    """One leadership: made when a node becomes leader, dropped when it no longer is."""

    def __init__(
        self,
        *,
        term: int,
        peers: Iterable[str],
        connected: Iterable[str],
        log: EntryCache,
        ready_builder: ReadyBuilder,
        config: RaftConfig,
        now: float,
    ) -> None:
        self._term = term
        self._log = log
        self._ready_builder = ready_builder
        self._config = config
        self.heartbeat_at = now
        self.due_at = now
        """When :meth:`tick` has something to do."""
        self._notice_at: float | None = None
        self._notice_index = -1
        self.round = 0
        self.peers: dict[str, Progress] = {
            peer: self._progress(log.last_index + 1, now) for peer in sorted(peers)
        }
        up = set(connected)
        for peer, progress in self.peers.items():
            progress.connected = peer in up

    def _progress(self, next_index: int, now: float) -> Progress:
        return Progress(
            next_index,
            now,
            window_messages=self._config.window_messages,
            window_bytes=self._config.window_bytes,
        )

    def set_peers(self, peers: Iterable[str], connected: Iterable[str], now: float) -> None:
        """From now on these get the log; what is known of those that stay is kept."""
        up = set(connected)
        kept: dict[str, Progress] = {}
        for peer in sorted(peers):
            progress = self.peers.get(peer)
            if progress is None:
                progress = self._progress(self._end, now)
                progress.connected = peer in up
            kept[peer] = progress
        self.peers = kept

    # --- what the followers say

    def accepted(self, peer: str, match_index: int, commit_index: int, now: float) -> bool:
        """A follower confirmed; returns whether a majority may have moved."""
        progress = self.peers[peer]
        progress.heard_at = now
        moved = progress.accepted(match_index, now)
        if moved:
            progress.confirmed_round = self.round
        self.replicate(peer, commit_index, now)
        return moved

    def rejected(self, peer: str, answer: AppendRejected, commit_index: int, now: float) -> None:
        """The logs do not meet there: steps back by whole terms, unless the answer is stale."""
        progress = self.peers[peer]
        progress.heard_at = now
        if answer.rejected_index <= progress.match_index:
            return
        if progress.state is PROBE and answer.rejected_index != progress.next_index - 1:
            return
        meeting = self._log.last_index_not_above(answer.hint_index, answer.hint_term)
        progress.probe_from(meeting + 1)
        self.replicate(peer, commit_index, now)

    def heartbeat_answered(
        self, peer: str, answer: HeartbeatResponse, commit_index: int, now: float
    ) -> bool:
        """A follower lives; returns whether a majority may have moved."""
        progress = self.peers[peer]
        progress.heard_at = now
        if answer.last_index < progress.match_index:
            # It holds less than it confirmed. Without this, an idle leader would never notice.
            progress = self._start_over(peer, now)
        if (
            answer.log_index < progress.confirmed_index
            and answer.round > progress.confirmed_round
            and answer.incarnation
        ):
            progress.lost = True
        moved = progress.alive(answer.match_index, answer.last_index, now)
        if moved:
            progress.confirmed_round = self.round
        self.replicate(peer, commit_index, now)
        return moved

    def connected(self, peer: str, commit_index: int, now: float) -> None:
        """A link came up; the peer may be a new process."""
        progress = self._start_over(peer, now)
        progress.connected = True
        self.round += 1  # it is asked what it holds now, not what it held when it confirmed last
        self._heartbeat(peer, commit_index, self.round)
        self.replicate(peer, commit_index, now)

    def _start_over(self, peer: str, now: float) -> Progress:
        """Asks again what the peer holds: with asynchronous flush a power failure may have taken
        something."""
        before = self.peers[peer]
        first = self._end if before.match_index < 0 else self._unconfirmed_from(before)
        progress = self._progress(first, now)
        progress.heard_at = before.heard_at  # a link that flaps is no sign of life
        progress.connected = before.connected
        progress.incarnation = before.incarnation
        progress.confirmed_index = before.confirmed_index
        progress.confirmed_round = before.confirmed_round
        progress.needed_index = before.needed_index
        progress.lost = before.lost
        self.peers[peer] = progress
        return progress

    def _unconfirmed_from(self, progress: Progress) -> int:
        """The first entry that can be sent and is not confirmed. A follower may hold more than it
        has confirmed: only its answer tells that it lacks what retention removed here."""
        return max(progress.match_index + 1, self._log.first_index)

    def lost(self, peer: str) -> None:
        """A link broke: nothing is sent until it is back."""
        self.peers[peer].connected = False

    def loaded(self, peer: str, entries: Sequence[Entry], commit_index: int, now: float) -> None:
        """Entries read from the disk; dropped if the follower no longer waits for just these."""
        progress = self.peers[peer]
        progress.loading = False
        if not entries:
            return  # tried again with the next heartbeat
        fitting = entries[0].index == progress.next_index and progress.may_send()
        if fitting and self._log.term_at(entries[-1].index) == entries[-1].term:
            self._append(peer, progress, tuple(entries), commit_index, now)
        self.replicate(peer, commit_index, now)

    # --- what is sent

    @property
    def _end(self) -> int:
        return self._log.last_index + 1

    def replicate_all(self, commit_index: int, now: float) -> None:
        """Sends to every follower what its window allows."""
        for peer in self.peers:
            self.replicate(peer, commit_index, now)

    def replicate(self, peer: str, commit_index: int, now: float) -> None:
        """Sends entries from the follower's next index on, from memory or after a read."""
        progress, log = self.peers[peer], self._log
        while True:
            first = progress.next_index
            if first > log.last_index and (
                progress.state is REPLICATE or progress.match_index == first - 1
            ):
                return
            if not progress.may_send():
                return
            if first < log.first_index or log.term_at(first - 1) is None:
                return  # the follower needs entries that retention removed
            if first >= log.cached_from:
                entries = log.entries(first, self._config.append_bytes_max)
                self._append(peer, progress, entries, commit_index, now)
            else:
                progress.loading = True
                last = log.cached_from - 1
                self._ready_builder.read(peer, first, last, self._config.append_bytes_max)

    def _append(
        self,
        peer: str,
        progress: Progress,
        entries: tuple[Entry, ...],
        commit_index: int,
        now: float,
    ) -> None:
        previous = progress.next_index - 1
        previous_term = self._log.term_at(previous)
        if previous_term is None:
            return  # below what is retained
        message = AppendRequest(self._term, previous, previous_term, commit_index, entries)
        self._ready_builder.send(peer, message)
        last = entries[-1].index if entries else previous
        progress.sent_commit = max(progress.sent_commit, min(commit_index, last))
        progress.sent(last, message.size, now)

    def _heartbeat(
        self,
        peer: str,
        commit_index: int,
        number: int,
        evidence: tuple[MemberEvidence, ...] = (),
    ) -> None:
        progress = self.peers[peer]
        # A follower may trust a commit index only as far as it confirmed to match (thesis 3.5;
        # etcd bounds its heartbeats in the same way).
        commit = min(commit_index, progress.match_index)
        progress.sent_commit = max(progress.sent_commit, commit)
        self._ready_builder.send(peer, Heartbeat(self._term, commit, number, evidence))

    def ask_all(self, commit_index: int) -> None:
        """A round of heartbeats out of turn: whoever answers still follows."""
        for peer, progress in self.peers.items():
            if progress.connected:
                self._heartbeat(peer, commit_index, self.round)

    # --- time

    def committed(self, commit_index: int, now: float) -> None:
        """The commit index moved: a follower that gets no entries soon gets a notice."""
        if self._notice_at is None:
            self._notice_at = now + self._config.commit_notice_seconds
            self._notice_index = commit_index
            self.due_at = min(self.heartbeat_at, self._notice_at)

    def tick(
        self, commit_index: int, now: float, evidence: tuple[MemberEvidence, ...] = ()
    ) -> None:
        """Sends due commit notices or heartbeats, and what a follower seems not to have got.

        The heartbeats pass on what the members hold.
        """
        beats = self.beats(now)
        if self._notice_at is not None and now >= self._notice_at:
            if not beats:
                for peer in self._behind():
                    self._heartbeat(peer, commit_index, NOTICE)
            self._notice_at = None
            if self._notice_index < commit_index:
                # What was committed meanwhile has its own time: while entries flow, they tell it.
                self.committed(commit_index, now)
        if beats:
            self.beat(commit_index, now, evidence)
        else:
            self._set_due()

    def _set_due(self) -> None:
        notice = self._notice_at
        self.due_at = self.heartbeat_at if notice is None else min(self.heartbeat_at, notice)

    def beats(self, now: float) -> bool:
        """Whether :meth:`tick` sends heartbeats: they are due, or nearly so when a notice is."""
        if now >= self.heartbeat_at:
            return True
        noticed = self._notice_at is not None and now >= self._notice_at
        return noticed and self.beats_soon(now) and bool(self._behind())

    def beats_soon(self, now: float) -> bool:
        """Whether heartbeats may take the place of what would be sent to all now."""
        return now >= self.heartbeat_at - self._config.heartbeat_seconds / 2

    def _behind(self) -> list[str]:
        """Whom a notice tells something new."""
        return [
            peer
            for peer, progress in self.peers.items()
            if progress.connected
            and progress.sent_commit < min(self._notice_index, progress.match_index)
        ]

    def beat(
        self, commit_index: int, now: float, evidence: tuple[MemberEvidence, ...] = ()
    ) -> None:
        """Sends heartbeats, the next of which are due after a whole interval again."""
        self.heartbeat_at = now + self._config.heartbeat_seconds
        self._set_due()
        for peer, progress in self.peers.items():
            if not progress.connected:
                continue
            self._heartbeat(peer, commit_index, self.round, evidence)
            if (
                progress.sent_at is not None
                and now - progress.sent_at >= self._config.resend_seconds
            ):
                progress.probe_from(self._unconfirmed_from(progress))
            self.replicate(peer, commit_index, now)
