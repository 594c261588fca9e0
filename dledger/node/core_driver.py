"""Drives the core: each event enters here, and what the core answers is done here.

This is the only place that joins the core to a transport, a log writer and a clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from dledger.errors import InvariantError, PeerError
from dledger.node.applier import Applier
from dledger.node.checkpointer import Checkpointer
from dledger.node.health_monitor import HealthMonitor
from dledger.node.leadership_announcer import LeadershipAnnouncer
from dledger.node.lifecycle import Lifecycle
from dledger.node.linearizable_reads import LinearizableReads
from dledger.node.log_divergence import LogDivergence
from dledger.node.log_writer import LogWriter
from dledger.node.member_features import MemberFeatures
from dledger.node.member_removal import MemberRemoval
from dledger.node.membership_changes import Membership
from dledger.node.peer_calls import PeerCalls
from dledger.node.peer_links import PeerLinks
from dledger.node.snapshot_receiver import SnapshotReceiver
from dledger.node.snapshot_sender import SnapshotSender
from dledger.node.state_divergence import StateDivergence
from dledger.raft.configuration import Configuration
from dledger.raft.core import Raft
from dledger.raft.messages import AppendRequest
from dledger.raft.raft_state import Role
from dledger.raft.ready import NOTHING, Write
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    HealthReport,
    RemovedNotice,
    ServiceMessage,
    SnapshotNeededNotice,
    StateReport,
)
from dledger.wire.transport import Message, Transport
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

TIMER_SECONDS = 0.001
"""The shortest time that uvloop waits."""

_LEADER = Role.LEADER  # after each event, and Python 3.11 takes 50 ns to find a member of an Enum


class CoreDriver:
    """Of one node; the handler of its transport. On the event loop."""

    def __init__(
        self,
        *,
        core: Raft,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        transport: Transport,
        writer: LogWriter,
        applier: Applier,
        announcer: LeadershipAnnouncer,
        membership: Membership,
        removal: MemberRemoval,
        reads: LinearizableReads,
        health: HealthMonitor,
        features: MemberFeatures,
        links: PeerLinks,
        divergence: LogDivergence,
        snapshot_sender: SnapshotSender,
        snapshot_receiver: SnapshotReceiver,
        checkpointer: Checkpointer,
        has_room: Callable[[int], bool],
        state_divergence: StateDivergence,
        calls: PeerCalls,
    ) -> None:
        """``has_room`` says whether the disk takes so many bytes more."""
        self.core = core
        self._loop = loop
        self._lifecycle = lifecycle
        self._transport = transport
        self._writer = writer
        self._applier = applier
        self._announcer = announcer
        self._membership = membership
        self._removal = removal
        self._reads = reads
        self._health = health
        self._features = features
        self._links = links
        self._divergence = divergence
        self._snapshot_sender = snapshot_sender
        self._snapshot_receiver = snapshot_receiver
        self._checkpointer = checkpointer
        self._has_room = has_room
        self._state_divergence = state_divergence
        self._calls = calls
        # What the transport knows: in a new group, what the settings say.
        found = core.configurations
        self._members: Configuration | None = found.current if found.index < 0 else None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def stop(self) -> None:
        """No tick comes any more."""
        if self._timer is not None:
            self._timer.cancel()

    # --- events from the transport (TransportHandler)

    def on_message(self, sender: str, message: Message) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        if not self._lifecycle.alive:
            return
        append: AppendRequest | None = None
        if isinstance(message, AppendRequest):
            append = message
            if self._divergence.found:
                if self.core.serves(sender):
                    self._snapshot_receiver.begin(sender)
                return
            if not self._has_room(append.size):
                # Treated as lost: the leader asks again, and has its majority without this node.
                if sender == self.core.leader:
                    log.warning(
                        "%s has no room for entries of %s",
                        self.core.node,
                        sender,
                        extra=FROM_OUTSIDE,
                    )
                return
        elif isinstance(message, ServiceMessage):
            self._service_message(sender, message)
            return
        try:
            self.core.receive(sender, message, self._loop.time())
            if append is not None:
                self._divergence.accepted()
        except PeerError as error:
            log.error(
                "%s drops a message of %s: %s",
                self.core.node,
                sender,
                error,
                extra=FROM_OUTSIDE,
            )
            self._transport.reset(sender)
            if append is not None:
                self._divergence.refused(sender, append)
        except InvariantError as error:
            self._lifecycle.fail(error)
            return
        self.advance()

    def on_peer_connected(self, peer: str, features: Collection[str] = ()) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        if self._lifecycle.alive:
            self._features.announced(peer, features)
            self._links.connected(peer)
            self._health.greet(peer)
            self._removal.greet(peer)
            self.core.peer_connected(peer, self._loop.time())
            self.advance()

    def on_peer_lost(self, peer: str) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        if self._lifecycle.alive:
            self.core.peer_lost(peer, self._loop.time())
            self._health.peers.lost(peer)
            self._features.lost(peer)
            self._links.lost(peer)
            self.advance()

    def _service_message(self, sender: str, message: ServiceMessage) -> None:
        """Hands what a peer says beside the protocol to the part that deals with it."""
        match message:
            case HealthReport():
                self._health.peers.received(sender, message)
            case SnapshotNeededNotice():
                self._snapshot_receiver.noticed(sender, message)
            case RemovedNotice():
                self._removal.received(sender, message, self._loop.time())
            case StateReport():
                self._state_divergence.on_report(sender, message)
            case FetchRequest():
                self._snapshot_sender.fetch(sender, message)
            case CheckpointRequest():
                self._snapshot_sender.checkpoint(sender, message)
            case FetchResponse() | CheckpointResponse():
                self._calls.answered(sender, message)

    # --- after every event

    def advance(self) -> None:
        """Takes the core's Ready after an event and does what it asks. Does nothing once the node
        has stopped or failed.
        """
        if not self._lifecycle.alive:
            return
        core = self.core
        ready = core.take()
        if ready is not NOTHING:
            for envelope in ready.messages:
                self._transport.send(envelope.to, envelope.message)
            for read in ready.reads:
                self._snapshot_sender.read_for_append(read)
            if ready.write is not None:
                self._writer.add(ready.write)
        if core.configurations.current is not self._members:
            self._members_changed()
        if self._applier.applied_index < core.raft_log.commit_index:
            self._applier.apply_after(ready)
        state, known = core.raft_state, self._announcer.leadership
        if (
            state.leader != known.leader
            or state.term != known.term
            or state.role is not known.role
            or (known.role is _LEADER and not known.serving)
            or self._membership.busy
        ):
            self._announce()
        for answer in ready.read_indexes:
            self._reads.answered(answer)
        deadline = core.deadline()
        # A deadline that moved later is left alone: the early tick finds nothing due and re-arms.
        if self._timer is None or deadline < self._timer_at:
            self._arm_timer(deadline)

    def _members_changed(self) -> None:
        self._members = found = self.core.configuration
        addresses = {node: address.peer for node, address in found.addresses.items()}
        self._transport.set_peers(found.members, addresses)

    def _arm_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lifecycle.alive:
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        if now < self._timer_at:
            # uvloop rounds to milliseconds, so it is early. A call for the rest would be rounded to
            # none, and come again and again until then.
            self._timer = self._loop.call_later(TIMER_SECONDS, self._on_timer)
            return
        self._timer = None
        if self._lifecycle.alive:
            self.core.tick(now)
            self.advance()

    def _announce(self) -> None:
        if self._membership.busy:
            self._membership.looked()
        self._announcer.announce()

    # --- disk

    def written(self, writes: Sequence[Write]) -> None:
        """These writes, and all before them, are durable."""
        if not self._lifecycle.alive:
            return
        for write in writes:
            for envelope in write.then:
                self._transport.send(envelope.to, envelope.message)
        self.core.written(writes[-1].id, self._loop.time())
        if self._snapshot_receiver.vote_floor >= 0:
            self._snapshot_receiver.check_vote_floor()
        self.advance()
        self._checkpointer.log_grew()
