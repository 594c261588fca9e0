"""Whether this node should lead: has its disk room, does it answer, is what it holds whole.

A node that should not lead is no less a member: it follows, votes and serves reads. But it waits
longer before it campaigns, or does not campaign at all, and a leader that becomes unhealthy hands
over to a voter that keeps up and reported that it is fit; if that comes to nothing, it steps down.
Where nobody is fit, the leader stays: its heartbeats do not wait for the disk, and a group without
a leader would be worth less. Nor is the leadership handed to a preferred leader that is not fit.

Only a leader asks how its peers are. So a change is told to all of them, whoever leads next, and
what has not changed is repeated to the leader alone: now and then, and to a new one at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dledger.errors import ChangeRefusedError, NoRoomError
from dledger.node.executor import Executor
from dledger.raft.raft_state import Role
from dledger.wire.service_messages import HealthReport
from store.io.disk_watermarks import DiskLevel, DiskSpace, DiskWatermarks

if TYPE_CHECKING:
    from dledger.node.node import Node

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
REPORT_SECONDS = 1.0
REPORT_VALID_SECONDS = 3.0
LASTING_SECONDS = 1.0
"""How long a leader must be unhealthy before it gives way: what passes is cheaper than an election.
"""

HAND_OVER_SECONDS = 1.0
"""How long a hand-over may take before a leader that is unhealthy steps down instead."""

YIELD_SECONDS = 10.0
"""Between two tries to give the leadership away."""

UNHEALTHY_DELAY_FACTOR = 4.0
"""How many times as long as others a node without room waits before it campaigns."""

ROOM_BYTES = 1 << 20
"""Less room than this for the log, and the disk is full whatever its share."""

_LEVELS = {
    DiskLevel.ROOM: "has room",
    DiskLevel.CLEAN: "fills up",
    DiskLevel.FORCE: "is nearly full, the oldest messages go",
    DiskLevel.FULL: "is full, messages are refused",
}


class HealthMonitor:
    """Looks at the disk, tells the peers, and gives leadership away. On the event loop."""

    def __init__(
        self,
        *,
        node: Node,
        reads: Executor,
        loop: asyncio.AbstractEventLoop,
        watermarks: DiskWatermarks,
        stall_seconds: float,
    ) -> None:
        """A write that takes ``stall_seconds`` says that the disk does not answer."""
        self.level = DiskLevel.ROOM
        self.space: DiskSpace | None = None
        self.stalled = False
        self.damaged = bool(node.store.recovered.short_segments)
        self.on_level: Callable[[DiskLevel], None] = lambda _level: None
        """Called with the level of the disk when it changes."""
        self._node = node
        self._reads = reads
        self._loop = loop
        self._watermarks = watermarks
        self._stall_seconds = stall_seconds
        self._reports: dict[str, tuple[HealthReport, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        self._report_at = 0.0
        self._reported: HealthReport | None = None
        self._reported_to: str | None = None  # the leader at that time
        self._yield_at = 0.0
        self._handing_over = False
        self._jobs_done = -1
        self._busy_since: float | None = None

    def start(self) -> None:
        """Begins to look now and then."""
        core = self._node.core
        _note(core.raft_state.damaged, core.node, self.damaged)
        self._reported = self.report  # whoever is reached is told
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def report(self) -> HealthReport:
        """What the peers are told."""
        return HealthReport(
            room=self.level is not DiskLevel.FULL,
            prompt=not self.stalled,
            whole=not (self.damaged or self._contradicts_group),
        )

    @property
    def _contradicts_group(self) -> bool:
        return self._node.divergence.found or bool(self._node.state_divergence.wrong)

    def no_room(self, size: int) -> NoRoomError:
        """Why an entry of ``size`` bytes is refused, as the disk was when it was last looked at."""
        if self.space is None:
            return NoRoomError(size)
        free, total, kept = (
            f"{each / (1 << 20):.1f}" for each in (*self.space, self._node.store.min_free_bytes)
        )
        return NoRoomError(
            size,
            f"{free} of {total} MiB are free, and {kept} MiB must stay free, "
            f"or {100 - self._watermarks.full_percent} % of the disk if that is more, "
            f"up to {self._watermarks.enough_bytes >> 20} MiB",
        )

    def peer_report(self, peer: str) -> HealthReport | None:
        """What a peer said lately."""
        told = self._reports.get(peer)
        if told is None or self._loop.time() - told[1] > REPORT_VALID_SECONDS:
            return None
        return told[0]

    def received(self, peer: str, report: HealthReport) -> None:
        """A peer says how it is. One that is no member yet may be one soon."""
        core = self._node.core
        if not (core.serves(peer) or peer in core.raft_state.up):
            return
        self._reports[peer] = (report, self._loop.time())
        raft_state = self._node.core.raft_state
        _note(raft_state.unhealthy, peer, not report.healthy)
        _note(raft_state.damaged, peer, not report.whole)

    def lost(self, peer: str) -> None:
        """A link broke: what is no member is forgotten."""
        if not self._node.core.serves(peer):
            raft_state = self._node.core.raft_state
            for known in (self._reports, raft_state.unhealthy, raft_state.damaged):
                known.pop(peer, None)

    def greet(self, peer: str) -> None:
        """A peer that is reached is told at once, before anything that a leader might count on."""
        self._node.send(peer, self.report)

    def set_damaged(self, *, damaged: bool) -> None:
        """Whether something below the commit index cannot be read at present."""
        self.damaged = damaged
        core = self._node.core
        _note(core.raft_state.damaged, core.node, damaged)
        self._changed()

    def state_wrong(self) -> None:
        """The state is not the group's: others are told, and this node does not campaign."""
        self._changed()

    def hand_over(self) -> None:
        """Begins to hand over to somebody who could lead, if there is one."""
        others = [peer for peer in self._node.core.peers if self._could_lead(peer)]
        if others:
            self._hand_over(others)

    def _tick(self) -> None:
        if self._node.failure is not None:
            return
        self._timer = self._loop.call_later(LOOK_SECONDS, self._tick)
        self._look_for_stall()
        if self.stalled:
            self._give_way()
        if not self._looking:
            self._looking = True
            self._reads.submit(self._look, self._looked)
        self._node.snapshot_receiver.check_vote_floor()
        self._node.snapshot_sender.look()
        self._changed()

    def _look(self) -> tuple[DiskSpace, bool]:
        store = self._node.store
        return store.disk_space(), store.has_room(min(ROOM_BYTES, store.segment_size))

    def _looked(self, found: tuple[DiskSpace, bool] | None, error: BaseException | None) -> None:
        self._looking = False
        if isinstance(error, OSError):
            log.warning("%s cannot see how full its disk is: %s", self._node.core.node, error)
            return
        if error is not None:
            self._node.fail(error)
            return
        if found is None or self._timer is None:
            return
        self.space, has_room = found
        level = self._watermarks.level(self.space) if has_room else DiskLevel.FULL
        if level is not self.level:
            self._set_level(level, self.space)
        self._give_way()

    def _set_level(self, level: DiskLevel, space: DiskSpace) -> None:
        before, self.level = self.level, level
        log.log(
            logging.WARNING if level > before else logging.INFO,
            "%s: the disk %s: %d of %d bytes are free, the last %d stay free",
            self._node.core.node,
            _LEVELS[level],
            space.free,
            space.total,
            self._node.store.min_free_bytes,
        )
        self.on_level(level)
        self._changed()

    def _look_for_stall(self) -> None:
        writer, now = self._node.writer, self._loop.time()
        if not writer.busy:
            self._busy_since = None
        elif self._busy_since is None or writer.jobs_done != self._jobs_done:
            self._busy_since, self._jobs_done = now, writer.jobs_done
        stalled = self._busy_since is not None and now - self._busy_since >= self._stall_seconds
        if stalled != self.stalled:
            self.stalled = stalled
            log.warning(
                "%s: a write %s",
                self._node.core.node,
                f"takes more than {self._stall_seconds:g} s" if stalled else "ended at last",
            )

    def _changed(self) -> None:
        """Draws the consequences of what is known."""
        core, now, report = self._node.core, self._loop.time(), self.report
        elections = core.elections
        elections.votes = self._node.snapshot_receiver.vote_floor < 0
        elections.campaigns = (
            elections.votes and report.prompt and (report.whole or self._all_damaged())
        )
        core.raft_state.election_delay_factor = 1.0 if report.room else UNHEALTHY_DELAY_FACTOR
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
            self._node.send(peer, report)

    def _all_damaged(self) -> bool:
        """Whether no other is whole either: then a leader is worth more than none."""
        core = self._node.core
        return not self._contradicts_group and all(
            peer in core.raft_state.damaged for peer in core.peers
        )

    def _give_way(self) -> None:
        """A leader that has been unhealthy for a while steps down, if somebody else could."""
        core, now, report = self._node.core, self._loop.time(), self.report
        if report.healthy or core.role is not Role.LEADER:
            self._yield_at = now + LASTING_SECONDS
            self._handing_over = False
            return
        if now < self._yield_at:
            return
        others = [peer for peer in core.peers if self._could_lead(peer)]
        if not others:
            return
        log.warning("%s gives up the leadership: %s", core.node, report.unhealthy_reason)
        if not self._handing_over and self._hand_over(others):
            self._handing_over = True
            self._yield_at = now + HAND_OVER_SECONDS
        else:
            self._handing_over = False
            self._yield_at = now + YIELD_SECONDS
            core.step_down(now)
        self._node.after_event()

    def _hand_over(self, others: Sequence[str]) -> bool:
        """Begins to hand over to the first of them who may lead; the preferred one comes first."""
        core = self._node.core
        preferred = core.config.preferred_leader
        for peer in sorted(others, key=lambda peer: (peer != preferred, peer)):
            try:
                core.lead().begin_transfer(peer, self._loop.time())
            except ChangeRefusedError as error:
                log.info("%s does not hand over to %s: %s", core.node, peer, error)
            else:
                return True
        return False

    def _could_lead(self, peer: str) -> bool:
        core, report = self._node.core, self.peer_report(peer)
        if report is None or not report.healthy or core.replicator is None:
            return False
        progress = core.replicator.peers.get(peer)
        return (
            progress is not None
            and progress.connected
            and progress.match_index >= core.commit_index
        )


def _note(members: dict[str, bool], member: str, holds: bool) -> None:
    if holds:
        members[member] = True
    else:
        members.pop(member, None)
