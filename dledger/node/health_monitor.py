"""Whether this node should lead: its disk has room and answers, and its data is whole.

A node that should not lead is still a member: it follows, votes and serves reads. But it waits
longer before it campaigns, or does not campaign at all. A leader that becomes unhealthy hands over
to a healthy voter that keeps up. If that fails, it steps down. If nobody is healthy, the leader
stays: its heartbeats do not wait for the disk, and a group without a leader would be worse. A
preferred leader that is unhealthy does not get the leadership either.

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
from collections.abc import Callable, Sequence

from dledger.errors import ChangeRefusedError, NoRoomError
from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.log_writer import LogWriter
from dledger.raft.core import Raft
from dledger.raft.health import OwnHealth
from dledger.raft.quorum import VoteResult, joint_vote_result
from dledger.wire.service_messages import HealthReport, ServiceMessage
from store.io.disk_watermarks import DiskLevel, DiskSpace, DiskWatermarks
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
REPORT_SECONDS = 1.0
REPORT_VALID_SECONDS = 3.0
LASTING_SECONDS = 1.0
"""Seconds that a leader must be unhealthy before it gives way. A short trouble costs less than an
election.
"""

HAND_OVER_SECONDS = 1.0
"""Seconds that a leadership transfer may take before an unhealthy leader steps down instead."""

YIELD_SECONDS = 10.0
"""Seconds between two tries to give the leadership away."""

ROOM_BYTES = 1 << 20
"""Bytes. With less room for the log the disk counts as full, whatever its share."""

_LEVELS = {
    DiskLevel.ROOM: "has room",
    DiskLevel.CLEAN: "fills up",
    DiskLevel.FORCE: "is nearly full, the oldest messages are deleted",
    DiskLevel.FULL: "is full, messages are refused",
}


class HealthMonitor:
    """Looks at the disk, tells the peers, and gives leadership away. On the event loop."""

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
        self.level = DiskLevel.ROOM
        self.space: DiskSpace | None = None
        self.stalled = False
        self.damaged = not core.own_health.intact
        self.on_level: Callable[[DiskLevel], None] = lambda _level: None
        """Called with the level of the disk when it changes."""
        self.on_refusal: Callable[[Callable[[int], NoRoomError] | None], None] = lambda _why: None
        """Called when messages must be refused, with what makes the error for a size in bytes; with
        None when they may be taken again."""
        self._refuses: tuple[bool, tuple[str, ...]] = (False, ())
        """Whether the own disk is full, and else the voters without whom there is no majority."""
        self._core = core
        self._store = store
        self._writer = writer
        self._lifecycle = lifecycle
        self._holds_confirmed = holds_confirmed
        self._contradicts_group = contradicts_group
        self._on_look = on_look
        self._send = send
        self._advance = advance
        self._reads = reads
        self._loop = loop
        self.watermarks = watermarks
        self._stall_seconds = stall_seconds
        self._reports: dict[str, tuple[HealthReport, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        self._report_at = 0.0
        self._reported: HealthReport | None = None
        self._reported_to: str | None = None  # the leader at that time
        self._yield_at = 0.0
        self._handing_over = False
        self._stops = False
        self._jobs_done = -1
        self._busy_since: float | None = None

    def start(self) -> None:
        """Begins to look now and then."""
        self._reported = self.report  # whoever is connected later is told by ``reached``
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def report(self) -> HealthReport:
        """What the peers are told."""
        own = self._own()
        return HealthReport(
            room=self.level is not DiskLevel.FULL,
            prompt=own.prompt and not self._stops,
            whole=own.intact and own.agrees,
        )

    def _own(self) -> OwnHealth:
        return OwnHealth(
            holds_confirmed=self._holds_confirmed(),
            prompt=not self.stalled,
            room=self.level is not DiskLevel.FULL and not self._stops,
            intact=not self.damaged,
            agrees=not self._contradicts_group(),
        )

    def no_room(self, size: int) -> NoRoomError:
        """Why an entry of ``size`` bytes is refused, as the disk was when it was last looked at."""
        return NoRoomError(size, "" if self.space is None else self._room(self.space))

    def _room(self, space: DiskSpace) -> str:
        """How much is free, and from where on messages are refused."""
        free, total, kept = (
            f"{each / (1 << 20):.1f}" for each in (*space, self._store.min_free_bytes)
        )
        return (
            f"{free} of {total} MiB are free, and {kept} MiB must stay free, "
            f"or {100 - self.watermarks.full_percent} % of the disk if that is more, "
            f"up to {self.watermarks.enough_bytes >> 20} MiB"
        )

    def _look_for_room(self) -> None:
        """Refuses messages, or takes them again."""
        full = self.level is DiskLevel.FULL
        without = () if full else self._voters_without_room()
        if (full, without) == self._refuses:
            return
        self._refuses = full, without
        if without:
            names = " and ".join(without)
            why = f"{names} say that they have no room, and the other voters are no majority"
            log.warning("%s refuses messages: %s", self._core.node, why)
            self.on_refusal(lambda size: NoRoomError(size, why))
        else:
            self.on_refusal(self.no_room if full else None)

    def _voters_without_room(self) -> tuple[str, ...]:
        """On a leader, the voters who said so lately; none if the others are a majority."""
        core = self._core
        if not core.leads:
            return ()
        reports = {peer: self.peer_report(peer) for peer in core.other_voters}
        without = {peer: False for peer, told in reports.items() if told and not told.room}
        lost = joint_vote_result(core.configuration.quorums, without) is VoteResult.LOST
        return tuple(sorted(without)) if lost else ()

    def peer_report(self, peer: str) -> HealthReport | None:
        """What a peer said lately."""
        told = self._reports.get(peer)
        if told is None or self._loop.time() - told[1] > REPORT_VALID_SECONDS:
            return None
        return told[0]

    def received(self, peer: str, report: HealthReport) -> None:
        """A peer says how it is. One that is no member yet may be one soon."""
        core = self._core
        if not (core.serves(peer) or peer in core.raft_state.up):
            return
        self._reports[peer] = (report, self._loop.time())
        core.health_reported(peer, healthy=report.healthy, intact=report.whole)

    def lost(self, peer: str) -> None:
        """A link broke: what is no member is forgotten."""
        if not self._core.serves(peer):
            self._reports.pop(peer, None)
            self._core.health_unknown(peer)

    def greet(self, peer: str) -> None:
        """A peer that is reached is told at once, before anything that a leader might count on."""
        self._send(peer, self.report)

    def set_damaged(self, *, damaged: bool) -> None:
        """Whether something below the commit index cannot be read at present."""
        self.damaged = damaged
        self._changed()

    def state_wrong(self) -> None:
        """The state is not the group's: others are told, and this node does not campaign."""
        self._changed()

    def hand_over(self) -> None:
        """Begins to hand over to somebody who could lead, if there is one."""
        others = [peer for peer in self._core.other_voters if self._could_lead(peer)]
        if others:
            self._hand_over(others)

    def stops(self) -> None:
        """This node stops: it hands over if it leads. Until it has ended it follows and votes. But
        it reports that it should not lead: a preferred leader does not get the leadership back."""
        if self._core.leads:
            self.hand_over()
            self._advance()
        self._stops = True
        self._changed()

    def _tick(self) -> None:
        if self._lifecycle.failure is not None:
            return
        self._timer = self._loop.call_later(LOOK_SECONDS, self._tick)
        self._look_for_stall()
        self._look_for_room()
        if self.stalled:
            self._give_way()
        if not self._looking:
            self._looking = True
            self._reads.submit(self._look, self._looked)
        self._on_look()
        self._changed()

    def _look(self) -> tuple[DiskSpace, bool]:
        store = self._store
        return store.disk_space(), store.has_room(min(ROOM_BYTES, store.segment_size))

    def _looked(self, found: tuple[DiskSpace, bool] | None, error: BaseException | None) -> None:
        self._looking = False
        if isinstance(error, OSError):
            log.warning("%s: cannot read how full its disk is: %s", self._core.node, error)
            return
        if error is not None:
            self._lifecycle.fail(error)
            return
        if found is None or self._timer is None:
            return
        self.space, has_room = found
        level = self.watermarks.level(self.space) if has_room else DiskLevel.FULL
        if level is not self.level:
            self._set_level(level, self.space)
        self._give_way()

    def _set_level(self, level: DiskLevel, space: DiskSpace) -> None:
        before, self.level = self.level, level
        log.log(
            logging.WARNING if level > before else logging.INFO,
            "%(node)s: the disk %(level)s: %(room)s",
            {
                "node": self._core.node,
                "level": _LEVELS[level],
                "room": self._room(space),
                "free": space.free,
                "total": space.total,
                "kept": self._store.min_free_bytes,
            },
        )
        self.on_level(level)
        self._look_for_room()
        self._changed()

    def _look_for_stall(self) -> None:
        writer, now = self._writer, self._loop.time()
        if not writer.busy:
            self._busy_since = None
        elif self._busy_since is None or writer.jobs_done != self._jobs_done:
            self._busy_since, self._jobs_done = now, writer.jobs_done
        stalled = self._busy_since is not None and now - self._busy_since >= self._stall_seconds
        if stalled != self.stalled:
            self.stalled = stalled
            log.warning(
                "%s: a write takes more than %g s"
                if stalled
                else "%s: a write ended after over %g s",
                self._core.node,
                self._stall_seconds,
            )

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

    def _give_way(self) -> None:
        """A leader that has been unhealthy for a while steps down, if another voter could lead."""
        core, now, report = self._core, self._loop.time(), self.report
        if report.healthy or not core.leads:
            self._yield_at = now + LASTING_SECONDS
            self._handing_over = False
            return
        if now < self._yield_at:
            return
        others = [peer for peer in core.other_voters if self._could_lead(peer)]
        if not others:
            return
        why = {"node": core.node, "reason": report.unhealthy_reason}
        log.warning("%(node)s gives up the leadership: %(reason)s", why)
        if not self._handing_over and self._hand_over(others):
            self._handing_over = True
            self._yield_at = now + HAND_OVER_SECONDS
        else:
            self._handing_over = False
            self._yield_at = now + YIELD_SECONDS
            core.step_down(now)
        self._advance()

    def _hand_over(self, others: Sequence[str]) -> bool:
        """Begins a transfer to the first of them who may lead; the preferred one comes first."""
        core = self._core
        preferred = core.config.preferred_leader
        for peer in sorted(others, key=lambda peer: (peer != preferred, peer)):
            try:
                core.transfer_leadership(peer, self._loop.time())
            except ChangeRefusedError as error:
                log.info("%s does not transfer the leadership to %s: %s", core.node, peer, error)
            else:
                return True
        return False

    def _could_lead(self, peer: str) -> bool:
        core, report = self._core, self.peer_report(peer)
        if report is None or not report.healthy:
            return False
        progress = core.progress.get(peer)
        return (
            progress is not None
            and progress.connected
            and progress.match_index >= core.commit_index
        )
