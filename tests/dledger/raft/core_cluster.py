"""A group of Raft cores with a network and disks that do only what a test says.

Messages wait in :attr:`Cluster.flight` until they are delivered; a write is durable at once unless
the disk is held; the clock stands still unless it is moved. Observers hear each event by a call, so
a transcript and a checker of invariants can watch the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from dledger.config import RaftConfig
from dledger.errors import InvariantError, PeerError, ProposeError
from dledger.raft.configuration import Configurations
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.ready import Read, Write
from dledger.wire.service_messages import ServiceMessage
from store.log.entry import Entry, EntryKind
from tests.dledger.raft.observer import Observer, Packet, RaftState
from tests.dledger.raft.written_log import next_entry

DELIVERIES_MAX = 20_000


@dataclass(slots=True)
class Disk:
    """The state that survives a crash (``term`` to ``mark``), and the writes that may not."""

    term: int = 0
    vote: str = ""
    entries: list[Entry] = field(default_factory=list)
    incarnation: int = 0
    mark: int = -1  # the commit index that a restarted node knows of
    held: bool = False
    readable: bool = True
    pending: list[Write] = field(default_factory=list)

    def apply(self, write: Write, entries_kept: int | None = None) -> None:
        """Makes a write durable; with ``entries_kept``, only its beginning (a crash meanwhile)."""
        if write.hard_state is not None:
            self.term, self.vote = write.hard_state
        if write.truncate_from is not None:
            del self.entries[write.truncate_from :]
        for entry in write.entries[:entries_kept]:
            assert entry.index == len(self.entries), "a hole in the log on disk"
            self.entries.append(entry)


class Cluster:
    """Cores, disks, links and a clock."""

    def __init__(
        self,
        names: Sequence[str],
        observers: Iterable[Observer] = (),
        *,
        config: RaftConfig | None = None,
        incarnations: Mapping[str, int] | None = None,
        segment_size: int = 1 << 20,
        seed: int = 0,
    ) -> None:
        self.names = tuple(names)
        self.joining: tuple[str, ...] = ()
        self.begun = tuple(names)  # the first voters of the group
        self.observers = list(observers)
        self.config = config or RaftConfig()
        self.now = 0.0
        found = incarnations or {}
        self.disks = {name: Disk(incarnation=found.get(name, 0)) for name in names}
        self.cores: dict[str, Raft] = {}
        self.flight: list[Packet] = []
        self.late: list[Packet] = []
        self.cuts: dict[tuple[str, str], bool] = {}  # cut links: no node is told
        self.links: dict[tuple[str, str], bool] = {
            (a, b): True for a in names for b in names if a < b
        }
        self._segment_size = segment_size
        self._seed = seed
        self._starts = 0
        self._raft_state: dict[str, RaftState] = {}
        self._committed: dict[str, int] = {}
        for name in names:
            self._boot(name)
        for name in names:
            self._connect_running_peers(name)

    # --- nodes

    def _boot(self, name: str) -> None:
        disk = self.disks[name]
        entries = disk.entries
        starts = [
            (entry.term, entry.index)
            for place, entry in enumerate(entries)
            if place == 0 or entries[place - 1].term != entry.term
        ]
        first_cached = disk.mark + 1
        before = entries[disk.mark] if disk.mark >= 0 else None
        log = EntryCache(
            last_index=len(entries) - 1,
            term_starts=starts,
            end_position=entries[-1].end if entries else 0,
            chain_crc=entries[-1].chain_crc if entries else 0,
            tail=entries[first_cached:],
            tail_base=(0, 0) if before is None else (before.end, before.chain_crc),
            cache_bytes_max=self.config.cache_bytes_max,
        )
        self._starts += 1
        self.cores[name] = Raft(
            node=name,
            configurations=Configurations.recovered(
                () if name in self.joining else self.begun,
                -1,
                b"",
                (e for e in entries if e.kind is EntryKind.CONFIGURATION),
            ),
            incarnation=disk.incarnation,
            log=log,
            segment_size=self._segment_size,
            rng=Random(f"{self._seed} {name} {self._starts}"),
            now=self.now,
            config=self.config,
            term=disk.term,
            vote=disk.vote,
            commit_index=disk.mark,
        )
        self._raft_state[name] = self._stand(name)
        self._committed[name] = disk.mark

    def add(self, name: str, incarnation: int = 0) -> None:
        """Starts a node that is not a member yet."""
        self.disks[name] = Disk(incarnation=incarnation)
        self.links.update({(min(a, name), max(a, name)): True for a in self.names})
        self.names += (name,)
        self.joining += (name,)
        self.restart(name)

    def ask(self, name: str, request: Callable[[Raft], object]) -> None:
        """Asks a node for something. Raises :class:`~dledger.errors.ProposeError`."""
        refusal: list[ProposeError] = []

        def ask(core: Raft) -> None:
            try:
                request(core)
            except ProposeError as error:
                refusal.append(error)

        self._event(name, ask)
        for error in refusal:
            raise error

    def _connect_running_peers(self, name: str) -> None:
        for peer in self.names:
            if peer != name and peer in self.cores and self.linked(name, peer):
                self._connect(name, peer)

    def reboot(self, name: str, disk: Disk | None = None) -> None:
        """Restarts a node, perhaps on another disk. Its peers do not notice."""
        if disk is not None:
            self.disks[name] = disk
        self.disks[name].pending = []
        self._boot(name)
        self._connect_running_peers(name)

    def crash(self, name: str, writes_kept: int = 0, entries_kept: int | None = None) -> None:
        """Kills a node. The disk made the first ``writes_kept`` of its pending writes; with
        ``entries_kept`` the next one too, but only so many of its entries."""
        disk = self.disks[name]
        for write in disk.pending[:writes_kept]:
            disk.apply(write)
        if entries_kept is not None and len(disk.pending) > writes_kept:
            disk.apply(disk.pending[writes_kept], entries_kept)
        disk.pending = []
        disk.held = False
        del self.cores[name]
        for peer in self.names:
            if peer != name:
                self._forget_flight(name, peer)
                if peer in self.cores and self.linked(name, peer):
                    self._disconnect(peer, name)

    def restart(self, name: str) -> None:
        """Starts a crashed node on what its disk kept."""
        self._boot(name)
        self._connect_running_peers(name)
        for peer in self.names:
            if peer != name and peer in self.cores and self.linked(name, peer):
                self._connect(peer, name)

    # --- links

    def linked(self, a: str, b: str) -> bool:
        """Whether the connection between two nodes stands."""
        return self.links[min(a, b), max(a, b)]

    def connect(self, a: str, b: str, up: bool) -> None:
        """Makes or breaks a connection. Both nodes are told, and messages in flight are lost."""
        if self.linked(a, b) == up:
            return
        self.links[min(a, b), max(a, b)] = up
        self._forget_flight(a, b)
        if a not in self.cores or b not in self.cores:
            return
        for node, peer in ((a, b), (b, a)):
            if up:
                self._connect(node, peer)
            else:
                self._disconnect(node, peer)

    def _connect(self, node: str, peer: str) -> None:
        for observer in self.observers:
            observer.connected(node, peer)
        self._event(node, lambda core: core.peer_connected(peer, self.now))

    def _disconnect(self, node: str, peer: str) -> None:
        self._event(node, lambda core: core.peer_lost(peer, self.now))

    def _forget_flight(self, a: str, b: str) -> None:
        ends = ((a, b), (b, a))
        self.flight = [packet for packet in self.flight if packet[:2] not in ends]

    def deliver(self, packet: Packet) -> None:
        """Delivers a packet, and takes it out of flight if it is there."""
        if packet in self.flight:
            self.flight.remove(packet)
        for observer in self.observers:
            observer.delivered(packet)
        message = packet.message
        assert not isinstance(message, ServiceMessage)  # cores send nothing outside the protocol
        if packet.to in self.cores:
            self._event(packet.to, lambda core: core.receive(packet.sender, message, self.now))

    def deliver_all(self, wanted: Callable[[Packet], bool] = lambda packet: True) -> int:
        """Delivers what is in flight, oldest first, and what that causes, until nothing is left."""
        count = 0
        while (packet := next(filter(wanted, self.flight), None)) is not None:
            self.deliver(packet)
            count += 1
            assert count < DELIVERIES_MAX, f"the group does not fall silent: {packet}"
        return count

    # --- time

    def tick(self, name: str) -> None:
        """Moves the clock to when a node wants to act, and lets it act."""
        self.now = max(self.now, self.cores[name].deadline())
        self._event(name, lambda core: core.tick(self.now))

    def run(self, seconds: float) -> None:
        """Runs all nodes for some time. The network delivers at once."""
        end = self.now + seconds
        self.deliver_all()
        while self.cores:
            name = min(self.cores, key=lambda name: (self.cores[name].deadline(), name))
            if self.cores[name].deadline() > end:
                break
            self.tick(name)
            self.deliver_all()
        self.now = end

    # --- the log and the disk

    def propose(self, name: str, body: bytes) -> None:
        """Proposes an entry at a node. Raises :class:`~dledger.errors.ProposeError`."""
        core = self.cores[name]
        core.check_may_propose()
        entry = next_entry(core.entry_cache, core.term, core.next_position(48 + len(body)), body)
        self._event(name, lambda core: core.propose(entry, self.now))

    def hold(self, name: str) -> None:
        """From now on the writes of the node do not become durable."""
        self.disks[name].held = True

    def release(self, name: str) -> None:
        """Makes all held writes durable in one sync. New writes are durable at once."""
        disk = self.disks[name]
        disk.held = False
        if disk.pending:
            self.complete(name, disk.pending[-1].id)

    def complete(self, name: str, write_id: int) -> None:
        """Makes the writes up to that id durable. The node is told only of the last one."""
        disk = self.disks[name]
        while disk.pending and disk.pending[0].id <= write_id:
            write = disk.pending.pop(0)
            disk.apply(write)
            for observer in self.observers:
                observer.durable(name, write)
            for envelope in write.then:
                self._send(Packet(name, envelope.to, envelope.message))
        self.report(name, write_id)

    def report(self, name: str, write_id: int) -> None:
        """Tells the node, perhaps again, that a write is durable."""
        self._event(name, lambda core: core.written(write_id, self.now))

    def save_mark(self, name: str) -> None:
        """Notes on disk how far the log is committed and durable."""
        disk = self.disks[name]
        core = self.cores[name]
        disk.mark = max(disk.mark, min(core.commit_index, core.durable_index))

    # --- the effects of an event

    def _event(self, name: str, event: Callable[[Raft], None]) -> None:
        core = self.cores[name]
        try:
            event(core)
        except PeerError as error:
            for observer in self.observers:
                observer.refuses(name, error)
        except InvariantError as error:
            for observer in self.observers:
                observer.stops(name, error)
            self.crash(name)
            return
        ready = core.take()
        for envelope in ready.messages:
            self._send(Packet(name, envelope.to, envelope.message))
        disk = self.disks[name]
        if ready.write is not None:
            disk.pending.append(ready.write)
            for observer in self.observers:
                observer.writes(name, ready.write, disk.held)
        self._tell_changes(name)
        for answer in ready.read_indexes:
            for observer in self.observers:
                observer.read_index(name, answer)
        for read in ready.reads:
            self._read(name, read)
        if ready.write is not None and not disk.held:
            self.complete(name, ready.write.id)

    def _tell_changes(self, name: str) -> None:
        core = self.cores[name]
        raft_state = self._stand(name)
        if raft_state != self._raft_state[name]:
            self._raft_state[name] = raft_state
            for observer in self.observers:
                observer.stands(name, raft_state)
        if core.commit_index != self._committed[name]:
            first = self._committed[name] + 1
            self._committed[name] = core.commit_index
            for observer in self.observers:
                observer.commits(name, first, core.commit_index)
        core.applied(core.commit_index)

    def _stand(self, name: str) -> RaftState:
        core = self.cores[name]
        return RaftState(core.role.value, core.term, core.leader)

    def _read(self, name: str, read: Read) -> None:
        for observer in self.observers:
            observer.reads(name, read)
        found: list[Entry] = []
        size = 0
        disk = self.disks[name]
        wanted = disk.entries[read.first_index : read.last_index + 1] if disk.readable else []
        for entry in wanted:
            size += entry.size
            if found and size > read.bytes_max:
                break
            found.append(entry)
        self._event(name, lambda core: core.loaded(read.peer, found, self.now))

    def _send(self, packet: Packet) -> None:
        for observer in self.observers:
            observer.sent(packet)
        up = packet.to in self.cores and self.linked(packet.sender, packet.to)
        if up and (packet.sender, packet.to) not in self.cuts:
            self.flight.append(packet)
            return
        for observer in self.observers:
            observer.lost(packet)
