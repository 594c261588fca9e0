"""Putting back, from the peers, what keeps a replica from being opened.

A replica whose log is damaged below its durable mark must not be opened as it is: what follows the
damage could not be trusted, and cutting it would take back what was confirmed. So before the node
takes part in anything it asks its peers for the entry that is not whole. Peers give committed
entries only, whatever this replica knows of them; one is written where the chain says that it
belongs, and the replica is opened again, to find the next. Until then the node takes no part in the
protocol. It only gives to peers what they ask for, as far as it is whole and known to be committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from typing import TypeAlias

from dledger.node.snapshot_sender import PIECE_BYTES
from dledger.wire.service_messages import FetchRequest, FetchResponse, FetchStatus
from dledger.wire.transport import Message, Transport
from store.errors import DamagedLogError, MissingSegmentError, StoreError
from store.io.filesystem import Bytes, FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import HEADER_SIZE, Entry, check_chain, padding
from store.log.entry_index import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import next_position, segment_start
from store.log.log_reader import Cursor, LogReader, SegmentFiles
from store.log.repair_note import overwrite_noted, overwritten_end
from store.recovery.damaged_log import cut_at_damage, note_committed
from store.recovery.opening import StoreConfig, begin_incarnation
from store.replica import ReplicaStore

log = logging.getLogger(__name__)

ASK_SECONDS = 1.0
LOG_SECONDS = 10.0


Prepare: TypeAlias = Callable[[ReplicaStore], object]
"""What must be done with a replica before its node is made, as it needs all of the log.

It may raise :class:`~store.errors.StoreError`. After a :class:`~store.errors.DamagedLogError` it is
called again once that is mended.
"""


def open_prepared(
    fs: FileSystem, directory: str, config: StoreConfig, prepare: Prepare
) -> ReplicaStore:
    """Opens the replica and prepares it. Raises what either does; then it is closed again."""
    store = ReplicaStore.open(fs, directory, config)
    with ExitStack() as unless_prepared:
        unless_prepared.callback(store.close)
        prepare(store)
        unless_prepared.pop_all()
    return store


async def open_repaired(  # noqa: PLR0917 - what a replica is opened with, then who mends it
    fs: FileSystem,
    directory: str,
    config: StoreConfig,
    make_transport: Callable[[], Transport],
    loop: asyncio.AbstractEventLoop,
    members: Collection[str],
    *,
    prepare: Prepare = lambda _store: None,
) -> ReplicaStore:
    """Opens the replica; what of its log is damaged is put back from the peers before that.

    ``members`` are the peers that this node is set up with: they alone may give an entry that no
    chain CRC ties to what is here.

    Raises the errors of :meth:`store.replica.ReplicaStore.open` and of ``prepare``, but for damage
    that peers may have mended, and those of :meth:`StartupRepair.repair`.
    """
    while True:
        try:
            return open_prepared(fs, directory, config, prepare)
        except MissingSegmentError as error:
            if config.alone:
                raise
            # Empty, it is damage like any other, and its entries are put back one by one.
            log.error("%s; it is made anew", error)
            fs.open(error.path, create=True).close()
            fs.sync_directory(f"{directory}/commitlog")
        except DamagedLogError as error:
            if config.alone:
                raise
            mending = StartupRepair(
                fs=fs,
                directory=directory,
                config=config,
                transport=make_transport(),
                loop=loop,
                members=members,
            )
            await mending.repair(error)


class StartupRepair:
    """The question for one damaged entry. A transport's handler while it lasts."""

    def __init__(
        self,
        *,
        fs: FileSystem,
        directory: str,
        config: StoreConfig,
        transport: Transport,
        loop: asyncio.AbstractEventLoop,
        members: Collection[str],
    ) -> None:
        self._members = frozenset(members) - {config.node}
        self._fs = fs
        self._directory = directory
        self._config = config
        self._segment_size = config.segment_size
        self._transport = transport
        self._loop = loop
        self._peers: dict[str, None] = {}
        self._asked = 0
        self._logged_at = 0.0
        self._full = False
        self._timer: asyncio.TimerHandle | None = None
        self._damage: DamagedLogError
        self._expired: set[str] = set()
        """Peers that have given up the damaged entry."""
        self._rows_end = 0
        """Behind the last entry that was whole when this began."""
        self._repaired: asyncio.Future[None]

    async def repair(self, damage: DamagedLogError) -> None:
        """Returns when the entry, and all damage right behind it, is whole again, however long
        that takes.

        Room on the disk is waited for as well. Raises :class:`~store.errors.StoreError` where no
        peer's entry may stand there, and ``OSError`` where the disk fails or the transport's port
        is taken.
        """
        if damage.index > damage.known_index:
            raise damage
        if damage.suffix_lost and self._config.incarnation:
            begin_incarnation(self._fs, self._directory, self._config)
        self._damage = damage
        self._rows_end = damage.index
        self._repaired = self._loop.create_future()
        await self._transport.start(self)
        try:
            self._ask()
            await self._repaired
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._transport.stop()

    def _ask(self) -> None:
        """Asks the peers in turn, now and then, until one has the entry."""
        self._timer = self._loop.call_later(ASK_SECONDS, self._ask)
        now = self._loop.time()
        if now >= self._logged_at:
            self._logged_at = now + LOG_SECONDS
            log.error("waiting for a peer to give entry %d: %s", self._damage.index, self._damage)
        if self._peers:
            peer = list(self._peers)[self._asked % len(self._peers)]
            self._asked += 1
            index = self._damage.index
            last = self._damage.known_index
            self._transport.send(peer, FetchRequest(index, index, last, PIECE_BYTES))

    # --- events from the transport

    def on_peer_connected(self, peer: str, _features: Collection[str] = ()) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        self._peers[peer] = None
        if self._timer is not None:
            self._timer.cancel()
            self._ask()

    def on_peer_lost(self, peer: str) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`."""
        self._peers.pop(peer, None)

    def on_message(self, sender: str, message: Message) -> None:
        """See :class:`~dledger.wire.transport.TransportHandler`; the protocol's messages go
        unheard.
        """
        if isinstance(message, FetchRequest) and sender in self._members:
            self._give(sender, message)
        if not isinstance(message, FetchResponse) or self._repaired.done():
            return
        if self._damage.chain_crc is None and sender not in self._members:
            return
        first = self._damage.index
        try:
            if message.status is FetchStatus.EXPIRED and message.first_index > first:
                self._given_up(sender)
            self._write_all(sender, message.entries)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                self._repaired.set_exception(error)
                return
            if not self._full:
                log.error(
                    "no room to put entry %d back (%s): free some; it is asked for until there is",
                    self._damage.index,
                    error,
                )
            self._full = True
        if self._damage.index > first:
            log.warning("%d to %d are whole again, from %s", first, self._damage.index - 1, sender)
            self._full = False
            self._expired.clear()
            if self._is_whole():
                self._repaired.set_result(None)
            elif self._timer is not None:
                self._timer.cancel()
                self._ask()

    def _given_up(self, peer: str) -> None:
        """Where all peers have given up the entry, the log ends before it, and is refilled."""
        damage = self._damage
        log.error("%s has given up entry %d", peer, damage.index)
        self._expired.add(peer)
        if self._members and self._members <= self._expired:
            if damage.index > damage.applied_index and self._config.incarnation:
                log.error("all have given up entry %d: the log ends before it", damage.index)
                cut_at_damage(self._fs, self._directory, self._config, damage)
                self._repaired.set_result(None)
                return
            log.error("all have given up entry %d: wipe this node, it is refilled", damage.index)

    def _give(self, peer: str, request: FetchRequest) -> None:
        """Answers with entries before the damage that are whole, and known to be committed.

        Two that wait for each other's entries would else do so for ever.
        """
        damage = self._damage
        rows = damage.rows
        place = request.first_index + len(rows) // ROW_SIZE - self._rows_end
        last = min(request.last_index, damage.commit_index, self._rows_end - 1)
        entries: Sequence[Entry] = ()
        if place >= 0 and request.first_index <= last:
            row = EntryIndexRow._make(ROW.unpack_from(rows, place * ROW_SIZE))
            size = min(max(request.bytes_max, HEADER_SIZE), PIECE_BYTES)
            with closing(SegmentFiles(self._fs, self._directory, self._segment_size)) as files:
                cursor = Cursor(row.entry_index, row.position)
                entries = LogReader(files).window(cursor, last_index=last, size=size).entries
        status = FetchStatus.ENTRIES if entries else FetchStatus.BUSY
        answer = FetchResponse(request.number, status, damage.first_index, tuple(entries))
        self._transport.send(peer, answer)

    def _is_whole(self) -> bool:
        """Whether the entry behind those that were written is whole, or not known to be one."""
        damage, size = self._damage, self._segment_size
        if damage.index > damage.known_index:
            return True
        behind = segment_start(damage.end, size) + size
        with closing(SegmentFiles(self._fs, self._directory, size)) as files:
            found = (
                LogReader(files).entry_at(position, damage.chain_crc)
                for position in (damage.end, behind)
            )
            return any(isinstance(each, Entry) for each in found)

    def _write_all(self, sender: str, entries: Sequence[Entry]) -> None:
        """Writes what is wanted of an answer. Others may have given its first entries meanwhile."""
        for entry in entries:
            if self._damage.index <= entry.index <= self._damage.known_index:
                try:
                    self._write(entry)
                except StoreError as error:
                    log.error("entry %d of %s does not fit: %s", entry.index, sender, error)
                    return

    def _write(self, entry: Entry) -> None:
        """Puts the entry in the place of the damaged one; then the next one is."""
        damage, size = self._damage, self._segment_size
        if entry.index != damage.index:
            raise StoreError(f"entry {damage.index} comes first")
        if damage.chain_crc is not None:
            check_chain(entry, damage.chain_crc)
        position = next_position(damage.end, entry.size, size)
        if entry.position != position:
            raise StoreError(f"it belongs at {position}, and was at {entry.position}")
        directory = f"{self._directory}/commitlog"
        if (
            entry.end >= damage.durable_position
            and self._config.incarnation
            and not self._holds(entry)
        ):
            # Where the last entry known to be durable is gone, what was behind it may be as well.
            begin_incarnation(self._fs, self._directory, self._config)
        if position != damage.end:
            self._put(damage.end, padding(position - damage.end))
        self._put(position, entry.data)
        self._fs.sync_directory(directory)
        damage.index, damage.end, damage.chain_crc = entry.index + 1, entry.end, entry.chain_crc
        above = entry.index > damage.commit_index
        if above and note_committed(self._fs, self._directory, entry):
            damage.known_index = entry.index

    def _holds(self, entry: Entry) -> bool:
        with closing(SegmentFiles(self._fs, self._directory, self._segment_size)) as files:
            return LogReader(files).read(entry.position, entry.size).data == entry.data

    def _put(self, position: int, data: Bytes) -> None:
        place = (self._fs, self._directory, self._segment_size, [(position, data)])
        if overwritten_end(*place) > self._damage.durable_position and self._config.incarnation:
            # What cannot be read goes on behind all that is known, and will read as zeros.
            begin_incarnation(self._fs, self._directory, self._config)
        overwrite_noted(*place)
