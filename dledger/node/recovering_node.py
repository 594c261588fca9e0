"""A node whose log has an unapplied hole: recovery cannot read on without those entries.

Its directory and its links to the peers are open. It takes no part in the protocol: the log behind
the hole is not known yet, and a core without it could take back what was confirmed. The node asks
its peers for the entries of the hole, gives them the committed entries that it has, and reports
that it is not whole. The real node is made once the log is whole.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack

from dledger.node.executor import Executor, StoppedError, result_of
from dledger.node.lifecycle import Lifecycle
from dledger.node.peer_calls import PeerCalls
from dledger.node.repairer import Repairer
from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.wire.service_messages import FetchRequest, FetchResponse, FetchStatus, HealthReport
from dledger.wire.transport import Message, Transport
from store.errors import DamagedError, StoreError
from store.io.filesystem import FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry
from store.recovery.opening import StoreConfig
from store.recovery.recovery import Recovery, UnappliedHole
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0
DAMAGED = HealthReport(room=True, prompt=True, whole=False)


async def open_replica(  # noqa: PLR0917 - what a replica is opened with, then who repairs it
    fs: FileSystem,
    directory: str,
    config: StoreConfig,
    make_transport: Callable[[], Transport],
    loop: asyncio.AbstractEventLoop,
    members: Collection[str],
    *,
    executor: Executor,
    on_hole: Callable[[DamagedError], None] = lambda _error: None,
) -> ReplicaStore:
    """Opens the replica: in ``executor``, as the whole log may have to be read. If the log has an
    unapplied hole, peers fill that first. ``members`` are the peers in this node's settings: only
    they may give an entry that no chain CRC ties to the rest. ``on_hole`` is told what is wrong
    before peers are asked.

    Raises the errors of :meth:`store.replica.ReplicaStore.open`, and ``OSError`` if the disk
    fails or the transport's port is taken.
    """
    with ExitStack() as unless_open:

        def read(go_on: Callable[[], None]) -> Recovery:
            recovery = Recovery(fs, directory, config, go_on)
            unless_open.callback(recovery.close)
            return recovery

        def finish(_go_on: Callable[[], None]) -> ReplicaStore:
            unless_open.pop_all()  # what fails closes all files
            store = ReplicaStore(fs, directory, recovery.finish())
            unless_open.callback(store.close)
            return store

        recovery = await result_of(executor, read)
        for lost in recovery.lost:
            log.error("found at the start: %s", lost)
        if recovery.hole is not None:
            if config.alone:
                raise recovery.hole.error
            on_hole(recovery.hole.error)
            others = frozenset(members) - {config.node}
            node = RecoveringNode(recovery, executor, make_transport(), loop, config.node, others)
            await node.run()
        store = await result_of(executor, finish)
        unless_open.pop_all()
    return store


class RecoveringNode:
    """Repairs one log, from its first hole to the last. A transport's handler while it lasts."""

    def __init__(  # noqa: PLR0917 - as above
        self,
        recovery: Recovery,
        executor: Executor,
        transport: Transport,
        loop: asyncio.AbstractEventLoop,
        node: str,
        members: frozenset[str],
    ) -> None:
        self._recovery = recovery
        self._executor = executor
        self._filling = False
        """Whether the executor has the recovery, which is for one thread at a time."""
        self._stops = threading.Event()
        self._transport = transport
        self._loop = loop
        self._members = members
        self._peers: dict[str, None] = {}
        self._whole: asyncio.Future[None] = loop.create_future()
        self._lifecycle = Lifecycle(
            node=node, on_silent=lambda: None, on_fatal=self._whole.set_exception
        )
        self._calls = PeerCalls(send=transport.send, loop=loop, lifecycle=self._lifecycle)
        self._repairer = Repairer(calls=self._calls, loop=loop, holes=self)
        self._expired: dict[str, None] = {}
        """Peers that have expired the first entry of the hole."""
        self._logged_at = 0.0
        self._full = False

    async def run(self) -> None:
        """Returns when the log has no hole, however long that takes."""
        self._lifecycle.begin()
        await self._transport.start(self)
        try:
            self._repairer.look()
            await self._whole
        finally:
            self._lifecycle.end()
            self._stops.set()
            await self._transport.stop()
            await result_of(self._executor, lambda _go_on: None)  # behind what it was given

    # --- events from the transport

    def on_peer_connected(self, peer: str, _features: Collection[str] = ()) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        self._peers[peer] = None
        self._transport.send(peer, DAMAGED)
        self._repairer.look()

    def on_peer_lost(self, peer: str) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        self._peers.pop(peer, None)

    def on_message(self, sender: str, message: Message) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`; the protocol's messages go
        unheard.
        """
        if isinstance(message, FetchRequest) and sender in self._members:
            self._give(sender, message)
        elif isinstance(message, FetchResponse):
            self._calls.answered(sender, message)

    def _give(self, peer: str, request: FetchRequest) -> None:
        """Otherwise two nodes could wait for each other's entries for ever."""
        recovery = self._recovery
        if request.first_index < recovery.first_index:
            status, entries = FetchStatus.EXPIRED, list[Entry]()
        elif self._filling:
            status, entries = FetchStatus.BUSY, []
        else:
            size = min(max(request.bytes_max, 0), PIECE_BYTES)
            entries = recovery.read(request.first_index, request.last_index, size)
            status = FetchStatus.ENTRIES if entries else FetchStatus.BUSY
        answer = FetchResponse(request.number, status, recovery.first_index, tuple(entries))
        self._transport.send(peer, answer)

    # --- what is damaged: see Holes

    def _hole(self) -> UnappliedHole | None:
        return self._recovery.hole if self._lifecycle.alive else None

    def sources(self) -> Sequence[str]:
        """See :class:`~dledger.node.repairer.Holes`."""
        hole = self._hole()
        tied = hole is not None and hole.tied
        return [peer for peer in self._peers if tied or peer in self._members]

    def wanted(self, rounds: int) -> tuple[int, int] | None:  # noqa: ARG002 - always the first hole
        """See :class:`~dledger.node.repairer.Holes`."""
        hole = self._hole()
        if hole is None:
            return None
        now = self._loop.time()
        if now >= self._logged_at:
            self._logged_at = now + LOG_SECONDS
            log.error("waiting for a peer to give entry %d: %s", hole.index, hole.error)
        return hole.index, hole.last_index

    def fill(self, peer: str, entries: Sequence[Entry], done: Callable[[bool], None]) -> None:
        """See :class:`~dledger.node.repairer.Holes`."""
        hole = self._hole()
        if hole is None:
            return

        def filled(_result: None, error: BaseException | None) -> None:
            self._filling = False
            if self._lifecycle.alive:
                self._filled(peer, hole, entries[-1].index, error, done)

        self._filling = True
        self._executor.submit(lambda: self._recovery.fill(entries, self._go_on), filled)

    def _go_on(self) -> None:
        """Called in the executor."""
        if self._stops.is_set():
            raise StoppedError

    def _filled(
        self,
        peer: str,
        hole: UnappliedHole,
        last_index: int,
        error: BaseException | None,
        done: Callable[[bool], None],
    ) -> None:
        """Entries up to ``last_index`` were to fill the hole. ``error`` says why some did not."""
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
            if not self._full:
                log.error("no room to repair entry %d (%s): free some", hole.index, error)
            self._full = True
        elif isinstance(error, StoreError) and not isinstance(error, DamagedError):
            missing = self._recovery.hole or hole
            log.error("entry %d of %s does not fit: %s", missing.index, peer, error)
        elif error is not None:
            self._lifecycle.fail(error)
            return
        after = self._recovery.hole
        some = after is None or after.index > hole.index
        if some:
            last = last_index if after is None else after.index - 1
            log.warning("entries %d to %d are repaired, from %s", hole.index, last, peer)
            self._full = False
            self._expired.clear()
        if after is None:
            self._whole.set_result(None)
        else:
            done(some)

    def expired(self, peer: str, index: int) -> None:
        """See :class:`~dledger.node.repairer.Holes`."""
        log.error("%s has expired entry %d", peer, index)
        self._expired[peer] = None
        if self._members and self._members <= self._expired.keys():
            log.error("all have expired entry %d: the log ends before it, and is refilled", index)
            try:
                self._recovery.give_up()
            except (StoreError, OSError) as error:
                self._lifecycle.fail(error)
            else:
                self._whole.set_result(None)
