"""One member of a group: the only place that connects the core to a store, a transport and a clock.

All of it runs on one event loop. Disk work goes to executors: ``log`` writes and syncs (one job at
a time, everything that arrived meanwhile goes with the next: group commit), ``reads`` serves what
is not in memory, ``background`` saves checkpoints and marks and prepares segments. The core never
waits for any of them, so heartbeats leave on time however slow the disk is. Where the kernel writes
the log while nobody waits, handing it the bytes may take a moment; a disk that takes longer over it
than that is left to the log thread (:mod:`store.io.async_io`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from dledger.config import RaftConfig
from dledger.errors import InvariantError, PeerError, ProposeError
from dledger.node.applier import Applier
from dledger.node.checked_reads import CheckedReads
from dledger.node.checkpointer import Checkpointer
from dledger.node.executor import Executors
from dledger.node.health import HealthMonitor
from dledger.node.leadership_announcer import LeadershipAnnouncer
from dledger.node.linearizable_reads import LinearizableReads
from dledger.node.log_divergence import LogDivergence
from dledger.node.log_writer import LogWriter
from dledger.node.member_features import MemberFeatures
from dledger.node.member_removal import MemberRemoval
from dledger.node.membership_changes import Membership
from dledger.node.online_snapshot import OnlineSnapshots
from dledger.node.peer_calls import PeerCalls
from dledger.node.proposals import Proposals
from dledger.node.recovered_core import recovered_core
from dledger.node.scrubber import Scrubber
from dledger.node.snapshot_receiver import SnapshotReceiver
from dledger.node.snapshot_sender import SnapshotSender
from dledger.node.state_divergence import StateDivergence
from dledger.node.state_machine import Leadership, StateMachine
from dledger.raft.messages import AppendRequest
from dledger.raft.raft_state import Chance
from dledger.raft.ready import NOTHING, Write
from dledger.wire.service_messages import ServiceMessage
from dledger.wire.transport import Message, Transport
from store.io.disk_watermarks import DiskWatermarks
from store.io.filesystem import Bytes
from store.quoting import FROM_OUTSIDE
from store.replica import ReplicaStore

log = logging.getLogger(__name__)


class Node:
    """Drives :class:`~dledger.raft.core.Raft` and applies what it commits."""

    def __init__(
        self,
        *,
        node: str,
        voters: Collection[str],
        store: ReplicaStore,
        transport: Transport,
        machine: StateMachine,
        executors: Executors,
        loop: asyncio.AbstractEventLoop,
        rng: Chance,
        on_fatal: Callable[[BaseException], None],
        config: RaftConfig | None = None,
        sync_flush: bool = True,
        watermarks: DiskWatermarks | None = None,
    ) -> None:
        """``voters`` are the members of a group that begins; none for a node that is to be added to
        one. What the log says overrules them. ``on_fatal`` is told once why the node stopped by
        itself; the process must then end."""
        self.store = store
        self.failure: BaseException | None = None
        self._loop = loop
        self._transport = transport
        self._machine = machine
        self._executors = executors
        self._on_fatal = on_fatal
        self.writer = LogWriter(
            store=store,
            executor=executors.log,
            sync_flush=sync_flush,
            written=self._written,
            failed=self.fail,
        )
        checkpoint = store.recovered.checkpoint
        config = config or RaftConfig()
        self.core = recovered_core(
            node=node,
            voters=voters,
            store=store,
            rng=rng,
            now=loop.time(),
            config=config,
            sync_flush=sync_flush,
        )
        self.features = MemberFeatures(
            node=node,
            serves=self.core.serves,
            members=lambda: self.core.configuration.members,
            members_at=lambda index: self.core.configurations.at(index).members,
        )
        self.proposals = Proposals(node=self, loop=loop)
        self.announcer = LeadershipAnnouncer(node=self, machine=machine)
        self.applier = Applier(
            node=self,
            machine=machine,
            reads=executors.reads,
            loop=loop,
            applied_index=-1 if checkpoint is None else checkpoint.index,
        )
        self.checkpointer = Checkpointer(
            node=self, machine=machine, background=executors.background, loop=loop
        )
        self.health = HealthMonitor(
            node=self,
            reads=executors.reads,
            loop=loop,
            watermarks=watermarks or DiskWatermarks(),
            stall_seconds=config.disk_stall_seconds,
        )
        self.reads = LinearizableReads(node=self, loop=loop)
        self.checked_reads = CheckedReads(node=self, reads=executors.reads)
        self.membership = Membership(node=self, loop=loop)
        self.removal = MemberRemoval(node=self)
        self._members_from = -1  # the entry from which the transport knows the members
        self.calls = PeerCalls(self, loop)
        self.snapshot_sender = SnapshotSender(
            node=self,
            background=executors.background,
            reads=executors.reads,
            loop=loop,
            bytes_per_second=config.snapshot_bytes_per_second,
        )
        self.snapshot_receiver = SnapshotReceiver(
            node=self, calls=self.calls, background=executors.background, loop=loop
        )
        self.divergence = LogDivergence(self, self.calls)
        self.state_divergence = StateDivergence(
            node=self, background=executors.background, loop=loop
        )
        self.scrubber = Scrubber(
            node=self,
            calls=self.calls,
            background=executors.background,
            loop=loop,
            bytes_per_second=config.scrub_bytes_per_second,
            pass_seconds=config.scrub_pass_seconds,
        )
        self.snapshots = OnlineSnapshots(node=self, background=executors.background, loop=loop)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._running = False

    # --- life

    async def start(self) -> None:
        """Restores the state, then joins the group."""
        checkpoint = self.store.recovered.checkpoint
        self._machine.restore(None if checkpoint is None else checkpoint.state)
        self._running = True
        self.checkpointer.start()
        await self._transport.start(self)
        self.health.start()
        self.scrubber.start()
        self.removal.start()
        self.after_event()

    async def stop(self) -> None:
        """Leaves the group, finishes disk work, saves a checkpoint and closes the store."""
        if not self._running:
            return
        self._running = False
        self.health.stop()
        self.scrubber.stop()
        if self._timer is not None:
            self._timer.cancel()
        await self._transport.stop()
        self.proposals.drop()
        self.reads.close()
        self.membership.close()
        if self.failure is None:
            await self.drained()
        if self.failure is None:
            await self.checkpointer.stop()
        self.store.close()

    async def drained(self) -> None:
        """Returns when all that the log writer was told to write is written."""
        drained = self._loop.create_future()
        self.writer.drain(lambda: drained.set_result(None))
        await drained

    def fail(self, error: BaseException) -> None:
        """Stops at once because what the disk or the group holds can no longer be trusted."""
        if self.failure is None:
            self.fall_silent(error)
            log.critical("%s stops: %s", self.core.node, error)
            self._on_fatal(error)

    def fall_silent(self, reason: BaseException) -> None:
        """From now on nothing is confirmed any more; :meth:`ended` is to follow."""
        self.failure = reason
        self.proposals.drop()
        if self._timer is not None:
            self._timer.cancel()

    def ended(self, reason: BaseException) -> None:
        """A node that fell silent has done its last."""
        self._on_fatal(reason)

    # --- what the broker asks

    @property
    def leadership(self) -> Leadership:
        """Role, term, leader and readiness as last announced."""
        return self.announcer.leadership

    @property
    def serving(self) -> bool:
        """Leads, and has applied the first entry of its term: proposals are accepted."""
        return self.announcer.leadership.serving

    @property
    def applied_index(self) -> int:
        """The last entry that is applied here."""
        return self.applier.applied_index

    def propose(
        self,
        body_size: int,
        build: Callable[[int], Sequence[Bytes]],
        done: Callable[[ProposeError | None], None],
    ) -> int:
        """Proposes one DATA entry whose body is exactly ``body_size`` bytes; returns its index.

        ``build(position)`` is called before this returns, with the position of the entry in the
        commit log. ``done(None)`` comes right after the entry is applied; ``done(error)`` when
        leadership ends before, and the outcome is unknown. Raises :class:`ProposeError` if nothing
        was proposed.
        """
        index = self.proposals.add(body_size, build, done)
        self.after_event()
        return index

    def has_room(self, size: int) -> bool:
        """Whether the disk takes ``size`` bytes behind all that waits to be written."""
        return self.store.has_room(
            self.core.entry_cache.end_position - self.store.end_position + size
        )

    # --- events from the transport (TransportHandler)

    def on_message(self, sender: str, message: Message) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        if not self.alive:
            return
        if isinstance(message, ServiceMessage):
            self.calls.received(sender, message)
            return
        if isinstance(message, AppendRequest):
            if self.divergence.found:
                if self.core.serves(sender):
                    self.snapshot_receiver.begin(sender)
                return
            if not self.has_room(message.size):
                # As if lost: the leader asks again, and has its majority elsewhere.
                if sender == self.core.leader:
                    log.warning(
                        "%s has no room for entries of %s",
                        self.core.node,
                        sender,
                        extra=FROM_OUTSIDE,
                    )
                return
        try:
            self.core.receive(sender, message, self._loop.time())
            if isinstance(message, AppendRequest):
                self.divergence.accepted()
        except PeerError as error:
            log.error(
                "%s drops a message of %s: %s",
                self.core.node,
                sender,
                error,
                extra=FROM_OUTSIDE,
            )
            self._transport.reset(sender)
            if isinstance(message, AppendRequest):
                self.divergence.refused(sender, message)
        except InvariantError as error:
            self.fail(error)
            return
        self.after_event()

    def on_peer_connected(self, peer: str, features: Collection[str] = ()) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        if self.alive:
            self.features.announced(peer, features)
            self.health.greet(peer)
            self.removal.greet(peer)
            self.core.peer_connected(peer, self._loop.time())
            self.after_event()

    def on_peer_lost(self, peer: str) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        if self.alive:
            self.core.peer_lost(peer, self._loop.time())
            self.health.lost(peer)
            self.features.lost(peer)
            self.after_event()

    # --- what nodes do for one another beside the protocol

    def send(self, peer: str, message: ServiceMessage) -> None:
        """Sends a message that promises nothing; it may be lost."""
        self._transport.send(peer, message)

    # --- after every event

    @property
    def alive(self) -> bool:
        """Whether it takes part: started, and neither stopped nor failed."""
        return self._running and self.failure is None

    def after_event(self) -> None:
        """The core was told or asked something: what comes of it is done."""
        core = self.core
        ready = core.take()
        if ready is not NOTHING:
            for envelope in ready.messages:
                self._transport.send(envelope.to, envelope.message)
            for read in ready.reads:
                self.snapshot_sender.read_for_append(read)
            if ready.write is not None:
                self.writer.add(ready.write)
        if core.configurations.index != self._members_from:
            self._members_changed()
        if self.applier.applied_index < core.raft_log.commit_index:
            self.applier.apply_after(ready)
        if self.announcer.outdated or self.membership.busy:
            self._announce()
        for answer in ready.read_indexes:
            self.reads.answered(answer)
        deadline = core.deadline()
        # A deadline that moved later is left alone: the early tick finds nothing due and re-arms.
        if self._timer is None or deadline < self._timer_at:
            self._arm_timer(deadline)

    def _members_changed(self) -> None:
        self._members_from = self.core.configurations.index
        found = self.core.configuration
        addresses = {node: address.peer for node, address in found.addresses.items()}
        self._transport.set_peers(found.members, addresses)

    def _arm_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.alive:
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.alive:
            self.core.tick(self._loop.time())
            self.after_event()

    def _announce(self) -> None:
        if self.membership.busy:
            self.membership.looked()
        self.announcer.announce()

    # --- disk

    def _written(self, writes: Sequence[Write]) -> None:
        if not self.alive:
            return
        for write in writes:
            for envelope in write.then:
                self._transport.send(envelope.to, envelope.message)
        self.core.written(writes[-1].id, self._loop.time())
        if self.snapshot_receiver.vote_floor >= 0:
            self.snapshot_receiver.check_vote_floor()
        self.after_event()
        self.checkpointer.log_grew()
