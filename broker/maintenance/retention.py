"""Retention: the leader decides which part of the log expires, and every replica follows.

The decision is a command in the log. So the minimum offset of a queue is the same on all replicas,
also after a restart.

A part that is too old or too large expires even if a member lacks it: that member is refilled
(``dledger/node/snapshot_receiver.py``). A part that a member is fetching is kept. Scheduled
messages are kept, and everything behind them. Above the disk's second watermark the oldest segments
expire in any case (:mod:`store.io.disk_watermarks`).

The store times in a segment may be ahead, because a leader's clock was. Such a segment would stay,
and everything behind it. So a segment is also as old as the time since a node first saw it closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.config.dynamic_settings import DynamicSettings
from broker.group_commit.batcher import Batcher
from broker.maintenance.retention_clock import RetentionClock
from broker.state.commands import Expire
from broker.state.state_machine import BrokerStateMachine
from dledger.errors import ProposeError
from dledger.periodic import Periodic
from store.errors import DiskFullError, StoreError
from store.io.disk_watermarks import DiskLevel
from store.log.retention_policy import (
    RetentionPolicy,
    SegmentStats,
    expiry_position,
    forced_expiry_position,
)
from store.replica import ReplicaStore

CHECK_SECONDS = 10.0
"""RocketMQ's ``cleanResourceInterval``."""

log = logging.getLogger(__name__)


class Needs(NamedTuple):
    """The parts of the log that must be kept; each is asked at every check."""

    refill_position: Callable[[], int | None]
    """The position of the first entry that a member is fetching; None if no member fetches."""
    positions: Sequence[Callable[[], int | None]]
    """The position of the first message that waits for its time or for the end of its transaction;
    None if none waits."""


class Retention:
    """Checks regularly whether a part of the log is due; acts only on a leader."""

    def __init__(
        self,
        policy: RetentionPolicy,
        *,
        store: ReplicaStore,
        machine: BrokerStateMachine,
        batcher: Batcher,
        settings: DynamicSettings,
        needs: Needs,
        loop: asyncio.AbstractEventLoop,
        wall_clock: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        """``wall_clock`` gives ms since 1970; ``fail`` ends the node."""
        self._policy = policy
        self._store = store
        self._machine = machine
        self._batcher = batcher
        self._settings = settings
        self._needs = needs
        self._clock = RetentionClock(wall_clock, loop.time)
        self._monotonic = loop.time
        self._closed_at: dict[int, float] = {}
        """By start of a segment: when this node first saw it closed and applied, in seconds."""
        self._fail = fail
        self._looks = Periodic(loop, CHECK_SECONDS, self._check)

    def start(self) -> None:
        self._looks.start()

    def stop(self) -> None:
        self._looks.stop()

    def check_soon(self) -> None:
        """Checks at once, because the disk fills up."""
        self._looks.hurry()

    def _check(self) -> None:
        self._clock.now_ms()
        self._note_closed()
        if not self._batcher.serving:
            return
        try:
            position = self.due_position()
        except DiskFullError as error:
            log.warning("cannot check for old segments now: %s", error)
            return
        except (StoreError, OSError) as error:
            self._fail(error)
            return
        if position <= self._machine.expired_position:
            return
        space = self._store.disk_space()
        if self._policy.watermarks.level(space) >= DiskLevel.FORCE:
            log.warning(
                "the disk is %(percent).1f %% full: expiring the log below position %(position)d, "
                "regardless of its age",
                {"percent": space.used_percent, "position": position},
            )
        else:
            log.info("expiring the log below position %(position)d", {"position": position})
        try:
            self._batcher.add_command(Expire(position))
        except ProposeError as error:
            log.warning("cannot expire old segments now: %s", error)

    def _note_closed(self) -> None:
        """Every node does this, because it may lead next. What is applied does not change."""
        known, now, applied = self._closed_at, self._monotonic(), self._machine.applied_end
        self._closed_at = {
            span.start: known.get(span.start, now)
            for span in self._store.segments()[:-1]
            if span.end <= applied
        }

    def _newest_ms(self, start: int, now_ms: int) -> int | None:
        """When the newest message of a segment came, by its store time and by :attr:`_closed_at`.

        That goes by a clock that never jumps, so no message is older than it really is.
        """
        newest_ms, closed_at = self._machine.segment_times.get(start), self._closed_at.get(start)
        if newest_ms is None or closed_at is None:
            return newest_ms
        return min(newest_ms, now_ms - int((self._monotonic() - closed_at) * 1000))

    def due_position(self) -> int:
        """The position below which the log may expire; 0 if nothing is due."""
        spans = self._store.segments()
        now_ms = self._clock.now_ms()
        stats = [
            SegmentStats(span.start, span.end, self._newest_ms(span.start, now_ms))
            for span in spans
        ]
        reserved_ms = self._settings.reserved_ms(self._policy.age_ms_max)
        policy = replace(self._policy, age_ms_max=reserved_ms)
        position = min(
            expiry_position(stats, policy, now_ms=now_ms),
            self._refilling_position(stats),
        )
        if position > self._machine.expired_position:
            position = min(position, self._waiting_position(stats))
        space = self._store.disk_space()
        position = max(position, forced_expiry_position(stats, policy.watermarks, space))
        return position if spans and position > spans[0].start else 0

    def _refilling_position(self, stats: list[SegmentStats]) -> int:
        """The position from which on members in a refill still need the log."""
        needed = self._needs.refill_position()
        if needed is None:
            return stats[-1].end if stats else 0
        return needed

    def _waiting_position(self, stats: list[SegmentStats]) -> int:
        """The start of the segment with the first message that waits for its time or for the end of
        its transaction."""
        needed = [oldest() for oldest in self._needs.positions]
        waiting = [position for position in needed if position is not None]
        if not waiting:
            return stats[-1].end if stats else 0
        first = min(waiting)
        return max((segment.start for segment in stats if segment.start <= first), default=0)
