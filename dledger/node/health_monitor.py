"""Whether this node should lead: its disk has room and answers, and its data is whole.

A node that should not lead is still a member: it follows, votes and serves reads. But it waits
longer before it campaigns, or does not campaign at all. As a leader it gives the leadership up
(:mod:`dledger.node.unhealthy_leader`). A preferred leader that is unhealthy does not get the
leadership either.

Only a leader needs the health of its peers, and anybody may lead next. So a node reports a change
to all peers. An unchanged report is repeated only to the leader: from time to time, and at once to
a new one.

A leader refuses messages while its disk is full, or while so many voters say that they have no room
that the others are no majority. Those still take entries then, because a disk counts as full before
it is. What a voter said counts until it says otherwise or is silent for a while, and one that is
silent stops no messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.errors import NoRoomError
from dledger.node.disk_monitor import DiskMonitor
from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.log_writer import LogWriter
from dledger.node.peer_health import PeerHealth
from dledger.node.unhealthy_leader import UnhealthyLeader
from dledger.raft.core import Raft
from dledger.raft.health import OwnHealth
from dledger.wire.service_messages import HealthReport, ServiceMessage
from store.io.disk_watermarks import DiskLevel, DiskWatermarks
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
REPORT_SECONDS = 1.0


class HealthMonitor:
    """Looks at the disk, tells the peers, and refuses messages. On the event loop."""

    def __init__(
        self,
        *,
        core: Raft,
        store: ReplicaStore,
        writer: LogWriter,
        reads: Executor,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        watermarks: DiskWatermarks,
        stall_seconds: float,
        peers: PeerHealth,
        unhealthy_leader: UnhealthyLeader,
        holds_confirmed: Callable[[], bool],
        contradicts_group: Callable[[], bool],
        on_look: Callable[[], None],
        send: Callable[[str, ServiceMessage], None],
        advance: Callable[[], None],
    ) -> None:
        """A write that takes ``stall_seconds`` says that the disk does not answer.

        ``holds_confirmed`` says whether this node has all that it may have confirmed, and
        ``contradicts_group`` whether its log or state is known to be another than the group's.
        ``on_look`` is called with each look at the disk, and ``advance`` has done what the core
        asks for.
        """
        self.disk = DiskMonitor(
            node=core.node,
            store=store,
            writer=writer,
            reads=reads,
            loop=loop,
            lifecycle=lifecycle,
            watermarks=watermarks,
            stall_seconds=stall_seconds,
            level_changed=self._level_changed,
            looked=self._give_way,
        )
        self.peers = peers
        self.damaged = not core.own_health.intact
        self.on_level: Callable[[DiskLevel], None] = lambda _level: None
        """Called with the level of the disk when it changes."""
        self.on_refusal: Callable[[Callable[[int], NoRoomError] | None], None] = lambda _why: None
        """Called when messages must be refused, with what makes the error for a size in bytes; with
        None when they may be taken again."""
        self._refuses: tuple[bool, tuple[str, ...]] = (False, ())
        """Whether the own disk is full, and else the voters without whom there is no majority."""
        self._core = core
        self._lifecycle = lifecycle
        self._unhealthy_leader = unhealthy_leader
        self._holds_confirmed = holds_confirmed
        self._contradicts_group = contradicts_group
        self._on_look = on_look
        self._send = send
        self._advance = advance
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._report_at = 0.0
        self._reported: HealthReport | None = None
        self._reported_to: str | None = None  # the leader at that time
        self._stops = False

    def start(self) -> None:
        """Begins to look now and then."""
        self._reported = self.report  # whoever is connected later is told by ``greet``
        self._tick()

    def stop(self) -> None:
        self.disk.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        if self._lifecycle.failure is not None:
            return
        self._timer = self._loop.call_later(LOOK_SECONDS, self._tick)
        self.disk.look_for_stall()
        self._refuse_or_take()
        if self.disk.stalled:
            self._give_way()
        self.disk.look_for_room()
        self._on_look()
        self._changed()

    # --- the own health

    @property
    def report(self) -> HealthReport:
        """What the peers are told."""
        own = self._own()
        return HealthReport(
            room=self.disk.level is not DiskLevel.FULL,
            prompt=own.prompt and not self._stops,
            whole=own.intact and own.agrees,
        )

    def _own(self) -> OwnHealth:
        return OwnHealth(
            holds_confirmed=self._holds_confirmed(),
            prompt=not self.disk.stalled,
            room=self.disk.level is not DiskLevel.FULL and not self._stops,
            intact=not self.damaged,
            agrees=not self._contradicts_group(),
        )

    def set_damaged(self, *, damaged: bool) -> None:
        """Whether something below the commit index cannot be read at present."""
        self.damaged = damaged
        self._changed()

    def state_wrong(self) -> None:
        """The state is not the group's: others are told, and this node does not campaign."""
        self._changed()

    def stops(self) -> None:
        """This node stops: if it leads, it transfers the leadership. Until it has ended it follows
        and votes. But it reports that it should not lead: a preferred leader does not get the
        leadership back."""
        if self._core.leads:
            self._unhealthy_leader.transfer()
            self._advance()
        self._stops = True
        self._changed()

    def _level_changed(self) -> None:
        self.on_level(self.disk.level)
        self._refuse_or_take()
        self._changed()

    def _give_way(self) -> None:
        self._unhealthy_leader.look(self.report)

    # --- what others are told

    def greet(self, peer: str) -> None:
        """A peer that is reached is told at once, before anything that a leader might count on."""
        self._send(peer, self.report)

    def _changed(self) -> None:
        """Acts on what is known."""
        core, now, report = self._core, self._loop.time(), self.report
        core.health_changed(self._own())
        leader = core.leader
        if report != self._reported:
            told = core.peers
        elif leader != self._reported_to or now >= self._report_at:
            told = () if leader is None or leader == core.node else (leader,)
        else:
            return
        self._reported, self._reported_to = report, leader
        self._report_at = now + REPORT_SECONDS
        for peer in told:
            self._send(peer, report)

    def _refuse_or_take(self) -> None:
        """Refuses messages, or takes them again."""
        full = self.disk.level is DiskLevel.FULL
        without = () if full else self.peers.voters_without_room()
        if (full, without) == self._refuses:
            return
        self._refuses = full, without
        if without:
            names = " and ".join(without)
            why = f"{names} say that they have no room, and the other voters are no majority"
            log.warning("%s refuses messages: %s", self._core.node, why)
            self.on_refusal(lambda size: NoRoomError(size, why))
        else:
            self.on_refusal(self.disk.no_room if full else None)
