"""How full the disk of this node is, and whether it completes writes in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.errors import NoRoomError
from dledger.node.executor import Executor
from dledger.node.lifecycle import Lifecycle
from dledger.node.log_writer import LogWriter
from store.io.disk_watermarks import DiskLevel, DiskSpace, DiskWatermarks
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

ROOM_BYTES = 1 << 20
"""Bytes. With less room for the log the disk counts as full, whatever its share."""

_LEVELS = {
    DiskLevel.ROOM: "has room",
    DiskLevel.CLEAN: "fills up",
    DiskLevel.FORCE: "is nearly full, the oldest messages are deleted",
    DiskLevel.FULL: "is full, messages are refused",
}


class DiskMonitor:
    """Of one node. On the event loop; the executor for reads asks the disk."""

    def __init__(
        self,
        *,
        node: str,
        store: ReplicaStore,
        writer: LogWriter,
        reads: Executor,
        loop: asyncio.AbstractEventLoop,
        lifecycle: Lifecycle,
        watermarks: DiskWatermarks,
        stall_seconds: float,
        level_changed: Callable[[], None],
        looked: Callable[[], None],
    ) -> None:
        """A write that takes ``stall_seconds`` says that the disk does not answer. ``looked`` is
        called after each look at the room, and before it ``level_changed`` if the level is another
        one."""
        self.level = DiskLevel.ROOM
        self.space: DiskSpace | None = None
        self.stalled = False
        self.watermarks = watermarks
        self._node = node
        self._store = store
        self._writer = writer
        self._reads = reads
        self._loop = loop
        self._lifecycle = lifecycle
        self._stall_seconds = stall_seconds
        self._level_changed = level_changed
        self._looked = looked
        self._looking = False
        self._stopped = False
        self._jobs_done = -1
        self._busy_since: float | None = None

    def stop(self) -> None:
        """Nothing is called any more."""
        self._stopped = True

    def look_for_room(self) -> None:
        """Asks the disk how full it is, unless that question is still open."""
        if not self._looking:
            self._looking = True
            self._reads.submit(self._ask, self._answered)

    def _ask(self) -> tuple[DiskSpace, bool]:
        store = self._store
        return store.disk_space(), store.has_room(min(ROOM_BYTES, store.segment_size))

    def _answered(self, found: tuple[DiskSpace, bool] | None, error: BaseException | None) -> None:
        self._looking = False
        if isinstance(error, OSError):
            log.warning("%s: cannot read how full its disk is: %s", self._node, error)
            return
        if error is not None:
            self._lifecycle.fail(error)
            return
        if found is None or self._stopped:
            return
        self.space, has_room = found
        level = self.watermarks.level(self.space) if has_room else DiskLevel.FULL
        if level is not self.level:
            self._set_level(level, self.space)
        self._looked()

    def _set_level(self, level: DiskLevel, space: DiskSpace) -> None:
        before, self.level = self.level, level
        log.log(
            logging.WARNING if level > before else logging.INFO,
            "%(node)s: the disk %(level)s: %(room)s",
            {
                "node": self._node,
                "level": _LEVELS[level],
                "room": self._room(space),
                "free": space.free,
                "total": space.total,
                "kept": self._store.min_free_bytes,
            },
        )
        self._level_changed()

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

    def look_for_stall(self) -> None:
        """Notes whether the write in progress takes too long."""
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
                self._node,
                self._stall_seconds,
            )
