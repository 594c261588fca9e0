"""One simulated machine: a disk that outlives its processes, and at most one process on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

from dledger.errors import InvariantError, ReopenError, SnapshotInstalledError
from dledger.node.node import Node
from dledger.node.recovering_node import open_replica
from dledger.node.service import Service, StopSignal, run_service, start_service
from dledger.raft.configuration import FIRST_INCARNATION
from dledger.wire.features import FEATURES
from dledger.wire.greeting import Greeting
from dledger.wire.peer_identity import PeerIdentity
from simulator.engine.disk_executor import ImmediateExecutor, executors_of
from simulator.engine.machine_clock import MachineClock
from simulator.engine.peer_network import SimulatedTransport
from simulator.engine.process import Process
from simulator.engine.process_loop import ProcessLoop
from simulator.engine.tcp_sockets import Interface
from simulator.engine.violation import Violation
from simulator.hosts.disk_host import DIRECTORY, DiskHost
from simulator.hosts.hash_state_machine import HashChainStateMachine
from simulator.hosts.node_service import NodeService
from simulator.hosts.observed_host import Ending, Environment, GroupConfig
from store.errors import DamagedError, DiskFullError, FatalDiskError, StoreError
from store.replica import StoreConfig

PEER_PORT, CLIENT_PORT, HTTP_PORT = 10915, 10911, 8080
MIN_FREE_BYTES = 4 << 10
INDEX_ROWS_PER_FILE = 16
PASSES_TO_FIND = 2
"""Passes of the scrub: the first may find a file's bounds wrong, and only the second what is
missing outside of them."""

EXPIRY_SECONDS = (0.0, 0.3, 0.6)
"""The pause until a host expires its log: it keeps two checkpoints, and what the older one
needs."""


class Host(DiskHost):
    """A machine of the cluster, by the name of its node. ``boot`` counts its processes."""

    def __init__(
        self,
        name: str,
        *,
        group: GroupConfig,
        environment: Environment,
        ended: Callable[[Host], None],
    ) -> None:
        """``ended`` is called for every process that ends."""
        super().__init__(name, environment)
        self.ip = group.ip(name)
        self.clock = MachineClock(environment.loop)
        self.refuses = False
        """Whether its last process refused to run because of damage, not of a failed disk."""
        self.features: Collection[str] = FEATURES
        """The announcements that its process makes to its peers and has heard; its next one knows
        all."""
        self.files_swapped = False  # since the log was last opened
        self._holds_old_bytes = False  # bytes of another file, in a place that was not read yet
        self._incarnations = environment.streams.stream(f"incarnations of {name}")
        self._group = group
        self._ended = ended
        self._loop: ProcessLoop
        self._interface: Interface | None = None
        self._transport: SimulatedTransport | None = None
        self._stop_signal: StopSignal
        self._opened = False  # of the present process
        self._is_repaired = False
        self._passes_at_damage = 0
        """The scrub passes of the present node when an entry was last damaged."""
        self._ending = Ending.POWER_LOSS

    @property
    def segment_size(self) -> int:
        """Bytes of a segment of the log."""
        return self._group.segment_size

    @property
    def group_name(self) -> str:
        """The name of the broker group."""
        return self._group.name

    @property
    def voters(self) -> Sequence[str]:
        """The members with which the group began."""
        return self._group.voters

    @property
    def addresses(self) -> tuple[str, str, str]:
        """Its addresses: for peers, clients, and HTTP."""
        return f"{self.ip}:{PEER_PORT}", f"{self.ip}:{CLIENT_PORT}", f"{self.ip}:{HTTP_PORT}"

    @property
    def greeting(self) -> Greeting:
        """The greeting of its process to peers."""
        return Greeting(self._group.name, self.name, self.addresses[0])

    @property
    def certified(self) -> PeerIdentity:
        """The name in its certificate."""
        return self._group.identity(self.name)

    @property
    def own_time(self) -> float:
        """Seconds by the clock of its process, which may drift."""
        return self._loop.time()

    @property
    def kept_from_running(self) -> bool:
        """Whether it cannot run because of damage: it refuses to, or waits for a repair. A host
        that is stopping, or is down between two processes, can run."""
        return self.node is None and self.damaged and (self.refuses or self.process is not None)

    @property
    def holds_old_bytes(self) -> bool:
        """Whether a file may still hold bytes of another one from a swap. A second swap would bring
        back an old copy of the log's end, which no node could notice."""
        if self._holds_old_bytes and self.node is not None:
            self._holds_old_bytes = not self.has_read_all
        return self._holds_old_bytes

    def part_is_doubtful(self, part: str) -> bool:
        """Whether damage to that part of the derived files may not be noticed yet."""
        if part not in self.damaged_parts:
            return False
        return not self.has_read_all

    @property
    def has_read_all(self) -> bool:
        """Whether the scrub has compared all files with the log. It skips damaged entries, so only
        passes after their repair count."""
        if self.node is None:
            return False
        return self.node.scrubber.passes >= self._passes_at_damage + PASSES_TO_FIND

    def keeps_all(self) -> bool:
        """Ends the retention of topics, if it leads. Returns whether no topic has one any more."""
        return True

    # --- events

    def start(self) -> None:
        """Starts a process, unless one runs: the store recovers, the node joins the group."""
        if self.process is not None:
            return
        self.boot += 1
        if self.boot > 1:
            self.features = FEATURES
        process = self.process = Process(after=self._step, died=self._died)
        process.run(self._boot, process)

    def upgrade(self) -> None:
        """Ends a process of an older program, and starts one of the present program."""
        if self.process is not None and self.features != FEATURES:
            self.note("restarts with another program")
            self.crash()
            self.start()

    def crash(self) -> None:
        """The process dies at once."""
        self._end(Ending.CRASH)

    def lose_power(self) -> None:
        """The machine loses power: unsynced sectors and names survive by chance."""
        self._end(Ending.POWER_LOSS)

    def end_within_a_call(self, ending: Ending, calls: int) -> None:
        """It ends in this way in the middle of the ``calls``-th file call from now that changes
        something."""
        if self.process is not None:
            self.note(f"{ending.value} in {calls} calls")
            self._ending = ending
            self.fs.lose_power_at(calls)

    def expire(self) -> None:
        """Saves checkpoints, and expires what no checkpoint needs, as retention may."""
        if self.node is None:
            return
        self.note("gives up old segments")
        for seconds in EXPIRY_SECONDS:
            self._loop.call_later(seconds, self._expire, self.node)

    def _expire(self, node: Node) -> None:
        if node is self.node and node.failure is None:
            node.checkpointer.checkpoint()
            node.checkpointer.expire(node.core.entry_cache.end_position)

    def pause(self) -> None:
        """Pauses its process until :meth:`resume`."""
        if self.process is not None:
            self.note("is paused")
            self.process.pause()

    def resume(self) -> None:
        """Lets its process run again."""
        if self.process is not None and self.process.paused:
            self.note("is resumed")
            self.coverage_mark("paused process resumed")
            self.process.resume()
            self._environment.network.relink()

    def stop(self) -> None:
        """Stops its process, as SIGTERM does."""
        if self.process is not None:
            self.process.run(self._stop)

    def switch_off(self) -> None:
        """Ends its process at the end of the simulation."""
        if self.process is not None:
            self.process.end()

    def work_again(self) -> None:
        """Ends all faults of this machine, and starts its process."""
        self.disk_slowness = 1.0
        self.free_disk()
        self.fs.disarm()
        self.resume()
        self.start()

    def _step(self) -> None:
        """See :class:`ObservedHost`."""
        if self.node is not None and self.node.scrubber.damage:
            self._passes_at_damage = self.node.scrubber.passes
        super()._step()

    # --- processes

    def _boot(self, process: Process) -> None:
        """Gives the process an address and a loop, and runs it like the shipped one."""
        environment = self._environment
        self._interface = Interface(environment.sockets, process, self.name, self.ip)
        self._loop = ProcessLoop(
            environment.loop, process, interface=self._interface, rate=self.clock.rate
        )
        self._stop_signal = StopSignal(self._loop)
        life = self._loop.create_task(run_service(self._start_service, self._stop_signal))
        life.add_done_callback(self._over)

    async def _start_service(self) -> Service:
        return await start_service(self._open)

    async def _open(self) -> Service:
        """Opens the machine's service. Its node exists then, and is started next."""
        if self._opened:
            self.boot += 1
        self._opened, self.node = True, None
        service, node = await self._open_service()
        found = node.store.recovered
        self.note(
            f"boots: term {found.term}, vote {found.vote or 'none'}, log to {found.last_index}, "
            f"commit {found.commit_index}, cut {found.torn_bytes_cut}"
        )
        if self._is_repaired:
            self.coverage_mark("damage repaired before the node started")
        self._holds_old_bytes |= self.files_swapped
        self.refuses = self.files_swapped = self._is_repaired = False
        self._passes_at_damage = 0
        self.node = node
        for observer in self.observers:
            observer.booted(self)
        service.failed.add_done_callback(lambda failed: self._failed(failed.result()))
        return service

    async def _open_service(self) -> tuple[Service, Node]:
        """Opens the data of a bare node, whose state is a hash of the applied entries."""
        group, environment, process = self._group, self._environment, self.process
        assert process is not None  # noqa: S101 - it is an event of it
        store = await open_replica(
            self.fs,
            DIRECTORY,
            StoreConfig(
                group.name,
                self.name,
                group.segment_size,
                min_free_bytes=MIN_FREE_BYTES,
                index_rows_per_file=INDEX_ROWS_PER_FILE,
                incarnation=self._new_incarnation(),
                direct=True,
            ),
            partial(self._make_transport, process),
            self._loop,
            group.voters,
            executor=ImmediateExecutor(),
            on_hole=self._has_hole,
        )
        executors, close = executors_of(self, process, environment.loop, environment.streams)
        failed: asyncio.Future[BaseException] = self._loop.create_future()
        node = Node(
            node=self.name,
            voters=group.voters,
            store=store,
            transport=self._make_transport(process),
            machine=HashChainStateMachine(self._applied, self._leadership, self._restored),
            executors=executors,
            loop=self._loop,
            rng=environment.streams.stream(f"node {self.name}"),
            on_fatal=failed.set_result,
            config=group.raft,
        )
        return NodeService(node, executors, close, failed), node

    def _new_incarnation(self) -> int:
        return self._incarnations.randrange(FIRST_INCARNATION, 1 << 62)

    def _make_transport(self, process: Process) -> SimulatedTransport:
        self._transport = SimulatedTransport(self._environment.network, self, process)
        self._transport.features = self.features
        return self._transport

    def _has_hole(self, damage: DamagedError) -> None:
        """Peers must fill a hole of its log before its node can start."""
        self.note(f"must be repaired: {damage}")
        if not (self.damaged or self.damaged_parts or self._disk_failed):
            raise Violation(f"{self.name} takes its log for damaged: {damage}")
        self._is_repaired = True

    def _stop(self) -> None:
        self.note("is asked to stop")
        self._stop_signal.ask(at_once=False)

    def _over(self, life: asyncio.Task[BaseException | None]) -> None:
        """Handles the end of the process's main task."""
        error = life.exception()
        if isinstance(error, StoreError | OSError):
            # It does not start. If damage is the reason, it never will with this disk.
            self.refuses = not (self._disk_failed or self._disk_filled)
            self._failed(error, starts=True)
        elif error is not None:
            raise error
        elif life.result() is None:
            self.coverage_mark(
                "stopped before its repair" if self._is_repaired else "stopped in order"
            )
        self._end(Ending.CRASH)

    def _failed(self, error: BaseException, *, starts: bool = False) -> None:
        """The process ends by itself: to open its data again, or after a disk error. A full disk
        may keep it from a start. It may stop it only if there was room when entries were proposed,
        and none when they were written: they are sent already."""
        self.note(f"stops: {error}")
        self.node = None
        if isinstance(error, ReopenError):
            self.coverage_mark(
                "refilled by a peer"
                if isinstance(error, SnapshotInstalledError)
                else "state taken again"
            )
            return
        full = self._disk_filled and (
            isinstance(error, DiskFullError) or (starts and isinstance(error, FatalDiskError))
        )
        broken = self._disk_failed
        damaged = (self.damaged or bool(self.damaged_parts)) and isinstance(error, StoreError)
        if isinstance(error, InvariantError) or not (full or broken or damaged):
            raise Violation(f"{self.name} stops by itself: {error!r}") from error
        if damaged:
            self.coverage_mark("damage kept a node from running")
        else:
            self.coverage_mark("disk full stopped a node" if full else "disk error stopped a node")

    def _died(self) -> None:
        self.coverage_mark(f"{self._ending.value} within a file call")
        self._end(self._ending)

    def _end(self, ending: Ending) -> None:
        if self.process is None:
            if ending is Ending.POWER_LOSS:
                self.fs.power_loss()
            return
        self.note(ending.value)
        self.process.end()
        self.process = self.node = None
        self._opened = self._is_repaired = False
        self._disk_errors.clear()
        self._disk_filled = self.fs.capacity is not None
        if self._transport is not None:
            self._environment.network.detach(self.name, self._transport)
            self._transport = None
        if self._interface is not None:
            power_lost = ending is Ending.POWER_LOSS
            self._environment.sockets.process_ended(self._interface, power_lost=power_lost)
            self._interface = None
        if ending is Ending.POWER_LOSS:
            self.fs.power_loss()
        else:
            self.fs.crash()
        self._ended(self)
