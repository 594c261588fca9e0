"""Snapshots of a running node: a checkpoint first, then the files piece by piece.

All disk work runs on the background executor, in steps of a few MiB with a pause after each. So
marks, checkpoints and the preparation of segments get their turn, and the disk has time for the
log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from dledger.node.executor import Executor
from dledger.settle import settle
from store.errors import SnapshotError
from store.replica import ReplicaStore
from store.snapshot import SnapshotWriter
from store.state.snapshot_manifest import Manifest

T = TypeVar("T")

log = logging.getLogger(__name__)

BYTES_PER_SECOND = 64 << 20


class OnlineSnapshots:
    """One node's, one at a time. On the event loop."""

    def __init__(
        self,
        *,
        store: ReplicaStore,
        checkpoint_then: Callable[[Callable[[BaseException | None], None]], None],
        background: Executor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``checkpoint_then`` calls what it is given once all that is applied now is saved."""
        self._store = store
        self._checkpoint_then = checkpoint_then
        self._background = background
        self._loop = loop
        self._busy = False

    async def take(self, place: Callable[[], str], time_ms: int) -> tuple[str, Manifest]:
        """Makes a snapshot of all that is applied now in the directory that ``place`` names.

        ``place`` may look at the disk, and raise; the directory is returned. Raises
        :class:`~store.errors.SnapshotError`, and nothing was made.
        """
        if self._busy:
            raise SnapshotError("another snapshot of this node is being made; try again then")
        self._busy = True
        try:
            target = await self._run(place)
            await self._checkpointed()
            writer = await self._run(lambda: self._store.begin_snapshot(target, time_ms))
            await self._write(writer)
        finally:
            self._busy = False
        return target, writer.manifest

    def discard(self, target: str) -> None:
        """Removes a snapshot that was made in ``target``, in the background."""

        def ended(_removed: None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("the snapshot %s cannot be removed: %s", target, error)

        self._background.submit(lambda: self._store.discard_snapshot(target), ended)

    def discard_found(self, find: Callable[[], Sequence[str]]) -> None:
        """Removes the snapshots that ``find`` names, in the background; it may read the disk."""

        def found(targets: Sequence[str] | None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("cannot look for incomplete snapshots: %s", error)
            for target in targets or ():
                log.warning("the snapshot %s is not complete: it is removed", target)
                self.discard(target)

        self._background.submit(find, found)

    async def _run(self, work: Callable[[], T]) -> T:
        waiter: asyncio.Future[T] = self._loop.create_future()
        self._background.submit(work, partial(settle, waiter))
        return await waiter

    async def _checkpointed(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()

        def saved(error: BaseException | None) -> None:
            if waiter.done():
                return
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(SnapshotError(f"no checkpoint could be saved: {error}"))

        self._checkpoint_then(saved)
        await waiter

    async def _write(self, writer: SnapshotWriter) -> None:
        steps: Iterator[int] = writer.steps()
        while True:
            copied = await self._run(lambda: next(steps, None))
            if copied is None:
                break
            await asyncio.sleep(copied / BYTES_PER_SECOND)
