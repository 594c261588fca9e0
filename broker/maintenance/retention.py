"""Retention: the leader decides what of the log is given up, and every replica does the same.

The decision is a command in the log, so the minimum offset of a queue is the same everywhere, and
the same again after a restart.

What is too old, or too much, goes although a member may lack it: that one is refilled
(``dledger/node/snapshot_receiver.py``), and what it fetches just now is kept, as are messages that
still wait for their time, with all that lies behind them. Above the disk's second watermark the
oldest segments go in any case (:mod:`store.io.disk_watermarks`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from broker.context import BrokerContext
from broker.state.commands import Expire
from dledger.errors import ProposeError
from store.errors import DiskFullError, OutOfRangeError, StoreError
from store.io.disk_watermarks import DiskLevel
from store.log.retention_policy import (
    RetentionPolicy,
    SegmentStats,
    expiry_position,
    forced_expiry_position,
)

CHECK_SECONDS = 10.0
"""RocketMQ's ``cleanResourceInterval``."""

log = logging.getLogger(__name__)


class Retention:
    """Looks now and then whether something is due; does nothing but on a leader."""

    def __init__(self, context: BrokerContext, policy: RetentionPolicy) -> None:
        self._context = context
        self._policy = policy
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        self._timer = self._context.loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check_soon(self) -> None:
        """Looks at once: the disk fills up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._context.loop.call_soon(self._check)

    def _check(self) -> None:
        self.start()
        if not self._context.batcher.serving:
            return
        try:
            position = self.due_position()
        except DiskFullError as error:
            log.warning("cannot look for old segments now: %s", error)
            return
        except (StoreError, OSError) as error:
            self._context.node.fail(error)
            return
        if position <= self._context.machine.expired_position:
            return
        space = self._context.node.store.disk_space()
        if self._policy.watermarks.level(space) >= DiskLevel.FORCE:
            log.warning(
                "the disk is %.1f %% full: giving up the log below position %d, however new it is",
                space.used_percent,
                position,
            )
        else:
            log.info("giving up the log below position %d", position)
        try:
            self._context.batcher.add_command(Expire(position))
        except ProposeError as error:
            log.warning("cannot give up old segments now: %s", error)

    def due_position(self) -> int:
        """Where the log may begin; 0 where nothing is due."""
        context = self._context
        spans = context.node.store.segments()
        times = context.machine.segment_times
        stats = [SegmentStats(span.start, span.end, times.get(span.start)) for span in spans]
        reserved_ms = context.settings.reserved_ms(self._policy.age_ms_max)
        policy = replace(self._policy, age_ms_max=reserved_ms)
        position = min(
            expiry_position(stats, policy, now_ms=context.wall_clock()),
            self._refilling_position(stats),
        )
        if position > context.machine.expired_position:
            position = min(position, self._waiting_position(stats))
        space = context.node.store.disk_space()
        position = max(position, forced_expiry_position(stats, policy.watermarks, space))
        return position if spans and position > spans[0].start else 0

    def _refilling_position(self, stats: list[SegmentStats]) -> int:
        """From where on members that are being refilled have still to fetch the log."""
        store, needed = self._context.node.store, self._context.node.snapshot_sender.needed_from
        if needed is None:
            return stats[-1].end if stats else 0
        try:
            return store.position_of(needed)
        except OutOfRangeError:
            return 0

    def _waiting_position(self, stats: list[SegmentStats]) -> int:
        """The start of the segment with the first message that still waits: for its time, or for
        the end of its transaction."""
        kept = (
            self._context.scheduled_messages.oldest_needed_position(),
            self._context.transactions.oldest_needed_position(),
        )
        waiting = [position for position in kept if position is not None]
        if not waiting:
            return stats[-1].end if stats else 0
        first = min(waiting)
        return max((segment.start for segment in stats if segment.start <= first), default=0)
