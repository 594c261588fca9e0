"""What a leader does beside replication: counts majorities, changes members, hands over, reads.

Made when a node becomes leader, dropped when it no longer is; the core looks at :attr:`over` after
each event.

Changes of the voters (Raft thesis 4.3): the leader appends the joint configuration, then, once
that is committed, the new one. Who takes over in between goes on where it finds things. No change
begins before an entry of the leader's own term is committed (bug B8: without it, two leaders'
changes can have disjoint majorities), nor before the last one is. A joint configuration that is not
committed in time is cancelled.

A member counts only on the disk that the configuration notes for it (*incarnation*). On another
one, or when it holds less than it confirmed, it is refilled: it gets the log like a learner, and is
noted anew once it holds all that it can have confirmed before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dledger.config import RaftConfig
from dledger.configuration import (
    LOST_INCARNATION,
    NO_INCARNATION,
    Configuration,
    MemberAddress,
)
from dledger.effects import Outbox
from dledger.errors import BusyError, ChangeRefusedError, PeerError, TransferringError
from dledger.locallog import LocalLog
from dledger.messages import (
    AppendAccepted,
    AppendRejected,
    HeartbeatResponse,
    ReadResponse,
    TimeoutNow,
)
from dledger.progress import Progress
from dledger.quorum import joint_quorum_index, majority
from dledger.readrounds import ReadAsked, ReadRounds
from dledger.replication import Replicator
from store.entry import HEADER_SIZE, Entry, EntryKind, build_entry

PREFERRED_PAUSE = 10.0
"""Election timeouts between two tries to hand over to the preferred leader."""


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
        now: float,
    ) -> None:
        self.over = False
        self.first_index = local.log.last_index + 1
        self.transfer_target: str | None = None
        self._node = node
        self._incarnation = incarnation
        self._term = term
        self._local = local
        self._outbox = outbox
        self._config = config
        self._connected = connected
        self._transfer_ends_at = 0.0
        self._transfer_sent = False
        self._prefer_at = now + config.election_seconds
        self._note_at = now + 2 * config.election_seconds
        self._changed_at = now
        self._quorum_check_at = now + config.election_seconds
        self._reads = ReadRounds()
        self._round_sent_at: dict[int, float] = {}
        self._lease_until = now
        self.replicator = Replicator(
            node=node,
            term=term,
            peers=self._peers(),
            connected=connected,
            log=local.log,
            outbox=outbox,
            config=config,
            now=now,
        )
        self._add(EntryKind.NO_OP, b"")
        self._tick_replicator(now)

    # --- majorities

    @property
    def _configuration(self) -> Configuration:
        return self._local.configurations.current

    def _peers(self) -> list[str]:
        return [name for name in self._configuration.members if name != self._node]

    def counts(self, peer: str) -> bool:
        """Whether what the peer confirms counts: it is on the disk that is noted for it."""
        progress = self.replicator.peers[peer]
        if progress.lost:
            return False
        return progress.incarnation is None or self._configuration.trusts(
            peer, progress.incarnation
        )

    def quorum_index(self) -> int:
        """The highest index that a majority holds durably; the leader's own disk is one of them."""
        held = {
            peer: progress.match_index
            for peer, progress in self.replicator.peers.items()
            if self.counts(peer)
        }
        held[self._node] = self._local.durable_index
        return joint_quorum_index(self._configuration.quorums, held)

    def _heard_by_majority(self, since: float) -> bool:
        heard = {
            peer: 1
            for peer, progress in self.replicator.peers.items()
            if progress.heard_at >= since and self.counts(peer)
        }
        heard[self._node] = 1
        found, quorums = self._configuration, self._configuration.quorums
        if found.is_joint and self._local.configurations.index > self._local.commit_index:
            # Without the new voters nothing commits, but the old ones suffice to call it off.
            quorums = (found.old_voters,)
        return joint_quorum_index(quorums, heard) == 1

    def _confirmed_round(self) -> int:
        rounds = {
            peer: progress.round
            for peer, progress in self.replicator.peers.items()
            if self.counts(peer)
        }
        rounds[self._node] = self.replicator.round
        return joint_quorum_index(self._configuration.quorums, rounds)

    # --- proposals

    def check_may_propose(self) -> None:
        """Raises :class:`TransferringError` or :class:`BusyError`."""
        if self.transfer_target is not None:
            raise TransferringError(self.transfer_target)
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
        return due if self.transfer_target is None else min(due, self._transfer_ends_at)

    def tick(self, now: float) -> None:
        """Acts on what is due."""
        if now >= self._quorum_check_at:
            self._quorum_check_at = now + self._config.election_seconds
            if not self._heard_by_majority(now - self._config.election_seconds):
                self.over = True
                return
            self._prefer(now)
        if self.transfer_target is not None and now >= self._transfer_ends_at:
            self.transfer_target = None  # it did not take over: this leader goes on
        self._tend(now)
        self._tick_replicator(now)

    def _tick_replicator(self, now: float) -> None:
        if now >= self.replicator.heartbeat_at:
            self._next_round(now)
        self.replicator.tick(self._local.commit_index, now)

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
        self._note_loss(progress)
        if answer.round > progress.round:
            progress.round = min(answer.round, self.replicator.round)
            self._serve_reads(now)
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
            progress.incarnation = incarnation
            # All that it can have confirmed under another one is in this log.
            progress.needed_index = self._local.log.last_index
        return progress

    def _note_loss(self, progress: Progress) -> None:
        if progress.lost and progress.needed_index < progress.confirmed_index:
            progress.needed_index = self._local.log.last_index

    def _moved(self, now: float) -> None:
        self.advance_commit(now)
        if self.transfer_target is not None:
            self._hand_over()

    # --- commit

    def advance_commit(self, now: float) -> None:
        """Only an entry of the present term commits by counting; older ones follow (figure 8)."""
        local = self._local
        index = self.quorum_index()
        if index <= local.commit_index or local.log.term_at(index) != self._term:
            return
        before = local.commit_index
        local.commit_to(index)
        self.replicator.committed(now)
        if before < max(self.first_index, local.configurations.index) <= index:
            self._tend(now)

    # --- members

    def add_learner(self, node: str, address: MemberAddress, now: float) -> int:
        """From now on ``node`` gets the log. Returns the index of the entry that says so.

        Raises :class:`ChangeRefusedError`, as the two below.
        """
        found = self._changeable()
        if found.votes(node):
            raise ChangeRefusedError(f"{node} is a voter already")
        return self._change(found.with_learner(node, address), now)

    def promote(self, node: str, now: float) -> int:
        """Makes a voter of a learner that has caught up."""
        found = self._changeable()
        if node not in found.learners:
            raise ChangeRefusedError(f"{node} is no learner")
        lag = self._local.commit_index - self.replicator.peers[node].match_index
        if not self._ready(node):
            raise ChangeRefusedError(f"{node} has to catch up first: it lacks {lag} entries")
        return self._change_voters((*found.voters, node), now)

    def remove(self, node: str, now: float) -> int:
        """Takes a member out, be it this leader itself."""
        found = self._changeable()
        if node in found.learners:
            return self._change(found.without_learner(node), now)
        if node not in found.voters:
            raise ChangeRefusedError(f"{node} is not a member")
        voters = [name for name in found.voters if name != node]
        if not voters:
            raise ChangeRefusedError(f"{node} is the only voter")
        return self._change_voters(voters, now)

    def _ready(self, voter: str) -> bool:
        """Whether a voter can carry its part at once: reached, on its own disk, and up to date."""
        if voter == self._node:
            return True
        progress = self.replicator.peers[voter]
        lag = self._local.commit_index - progress.match_index
        return (
            progress.connected
            and progress.match_index >= 0
            and lag <= self._config.promote_lag_entries
            and self.counts(voter)
        )

    def _change_voters(self, voters: Sequence[str], now: float) -> int:
        """Not to voters of whom no majority could elect anybody: there is no way back from that
        once this leader is gone."""
        unready = [voter for voter in voters if not self._ready(voter)]
        if len(voters) - len(unready) < majority(len(voters)):
            raise ChangeRefusedError(
                f"{', '.join(unready)} cannot be reached, has to catch up first, or is refilled"
            )
        return self._change(self._configuration.with_voters(voters), now)

    def _changeable(self) -> Configuration:
        configurations = self._local.configurations
        if self.transfer_target is not None:
            raise ChangeRefusedError(
                f"the leadership is being handed over to {self.transfer_target}"
            )
        if self._local.commit_index < self.first_index:
            raise ChangeRefusedError("the new leader has not committed an entry of its own yet")
        if configurations.index > self._local.commit_index or configurations.current.is_joint:
            raise ChangeRefusedError("another change of the members is under way")
        return configurations.current

    def _change(self, configuration: Configuration, now: float) -> int:
        index = self._add(EntryKind.CONFIGURATION, configuration.pack())
        self._changed_at = now
        # Who leaves is told by this very entry, and forgotten once its successor is committed.
        leaving = [peer for peer in self.replicator.peers if peer not in configuration.members]
        self.replicator.set_peers([*self._peers(), *leaving], self._connected, now)
        self.replicator.replicate_all(self._local.commit_index, now)
        return index

    def _tend(self, now: float) -> None:
        """Goes on with what the present configuration asks for."""
        configurations, commit_index = self._local.configurations, self._local.commit_index
        if commit_index < self.first_index:
            return
        found = configurations.current
        if configurations.index > commit_index:
            if found.is_joint and now - self._changed_at >= self._config.change_seconds:
                self._change(found.cancelled(), now)
            return
        if found.is_joint:
            self._change(found.completed(), now)
            return
        if len(self.replicator.peers) != len(self._peers()):
            self.replicator.tick(commit_index, now)
            self.replicator.ask_all(commit_index)
            self.replicator.set_peers(self._peers(), self._connected, now)
        if not found.votes(self._node):
            self._order_successor()
            self.over = True
            return
        noted = self._incarnations_to_note(found, now)
        if noted:
            self._change(found.with_incarnations(noted), now)
            for peer in noted:
                if peer != self._node and noted[peer] != LOST_INCARNATION:
                    self.replicator.peers[peer].lost = False

    def _incarnations_to_note(self, found: Configuration, now: float) -> dict[str, int]:
        noted: dict[str, int] = {}
        if not found.incarnations.get(self._node) and self._incarnation:
            noted[self._node] = self._incarnation
        waits = False
        for peer, progress in self.replicator.peers.items():
            before = found.incarnations.get(peer, NO_INCARNATION)
            if progress.lost and before != LOST_INCARNATION:
                noted[peer] = LOST_INCARNATION
            elif not progress.incarnation:
                waits = waits or self._incarnation != NO_INCARNATION
            elif before == NO_INCARNATION or (
                (before != progress.incarnation or progress.lost)
                and progress.match_index >= progress.needed_index
            ):
                noted[peer] = progress.incarnation
        if waits and now < self._note_at and LOST_INCARNATION not in noted.values():
            return {}  # in a new group, one entry for all of them
        return noted

    # --- handing over

    def begin_transfer(self, target: str, now: float) -> None:
        """Hands the leadership to a voter: no proposals from now on, it catches up, and campaigns.

        If it does not lead within an election timeout, this leader goes on. Raises
        :class:`ChangeRefusedError`.
        """
        if target == self._node:
            raise ChangeRefusedError(f"{target} leads already")
        self._changeable()
        progress = self.replicator.peers.get(target)
        if progress is None or target not in self._configuration.voters:
            raise ChangeRefusedError(f"{target} is not a voter")
        if not progress.connected or not self.counts(target):
            raise ChangeRefusedError(f"{target} cannot be reached, or is being refilled")
        self.transfer_target = target
        self._transfer_sent = False
        self._transfer_ends_at = now + self._config.election_seconds
        self._hand_over()

    def _hand_over(self) -> None:
        """Once all is committed and with the target: nobody's proposal is left in the air."""
        target, last = self.transfer_target, self._local.log.last_index
        if target is None or self._transfer_sent or self._local.commit_index < last:
            return
        progress = self.replicator.peers.get(target)
        if progress is not None and progress.match_index == last:
            self._transfer_sent = True
            self._outbox.send(target, TimeoutNow(self._term))

    def _order_successor(self) -> None:
        """Whoever holds most goes on, now that this leader is no member any more."""
        voters = [
            (progress.match_index, peer)
            for peer, progress in self.replicator.peers.items()
            if progress.connected and peer in self._configuration.voters and self.counts(peer)
        ]
        if voters:
            self._outbox.send(max(voters)[1], TimeoutNow(self._term))

    def _prefer(self, now: float) -> None:
        preferred = self._config.preferred_leader
        if preferred in ("", self._node) or now < self._prefer_at or self.transfer_target:
            return
        progress = self.replicator.peers.get(preferred)
        if progress is None or not progress.connected:
            return
        if self._local.commit_index - progress.match_index > self._config.promote_lag_entries:
            return
        self._prefer_at = now + PREFERRED_PAUSE * self._config.election_seconds
        try:
            self.begin_transfer(preferred, now)
        except ChangeRefusedError:
            return  # a change is under way; there will be another occasion

    # --- reads

    def ask_read(self, asker: str, number: int, now: float) -> None:
        """A read index is wanted; see ``readrounds.py``."""
        asked = ReadAsked(asker, number, max(self._local.commit_index, self.first_index))
        if self._config.lease_reads and now < self._lease_until and self.transfer_target is None:
            self._answer_read(asked)
        elif self._reads.add(asked):
            self._begin_read_round(now)

    def _begin_read_round(self, now: float) -> None:
        self._next_round(now)
        self.replicator.ask_all(self._local.commit_index)
        self._serve_reads(now)

    def _next_round(self, now: float) -> None:
        self.replicator.round += 1
        self._reads.begun(self.replicator.round)
        if self._config.lease_reads:
            self._round_sent_at[self.replicator.round] = now

    def _serve_reads(self, now: float) -> None:
        confirmed = self._confirmed_round()
        for asked in self._reads.confirmed(confirmed):
            self._answer_read(asked)
        if self._config.lease_reads:
            self._extend_lease(confirmed)
        if self._reads.gathering:
            self._begin_read_round(now)

    def _extend_lease(self, confirmed: int) -> None:
        """Who answered a round sent then elects nobody for an election timeout from then on."""
        known = [number for number in self._round_sent_at if number <= confirmed]
        if known:
            valid = self._config.election_seconds * (1 - self._config.lease_drift)
            self._lease_until = self._round_sent_at[known[-1]] + valid
            for number in known:
                del self._round_sent_at[number]

    def _answer_read(self, asked: ReadAsked) -> None:
        if asked.asker == self._node:
            self._outbox.read_index(asked.number, asked.read_from)
        else:
            self._outbox.send(asked.asker, ReadResponse(self._term, asked.number, asked.read_from))

    def drop_reads(self) -> None:
        """The leadership is over: nobody's read is confirmed any more."""
        for asked in self._reads.drop():
            if asked.asker == self._node:
                self._outbox.read_index(asked.number, None)
            else:
                self._outbox.send(asked.asker, ReadResponse(self._term, asked.number, -1))
