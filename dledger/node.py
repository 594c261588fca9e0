"""One member of a group: the only place that connects the core to a store, a transport and a clock.

All of it runs on one event loop. Disk work goes to executors: ``log`` writes and syncs (one job at
a time, everything that arrived meanwhile goes with the next: group commit), ``reads`` serves what
is not in memory, ``background`` saves checkpoints and marks and prepares segments. The core never
waits for any of them, so heartbeats leave on time however slow the disk is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from dledger.calls import PeerCalls
from dledger.catchup import CatchUp
from dledger.config import RaftConfig
from dledger.configuration import Configurations
from dledger.divergence import Divergence
from dledger.effects import Read, Write
from dledger.errors import (
    InvariantError,
    NoRoomError,
    NotServingError,
    OutcomeUnknownError,
    PeerError,
    ProposeError,
    RefilledError,
)
from dledger.executor import Executor
from dledger.fitness import Fitness
from dledger.keeper import Keeper
from dledger.log import RaftLog
from dledger.logwriter import LogWriter
from dledger.membership import Membership
from dledger.messages import AppendRequest, Message
from dledger.raft import Raft
from dledger.reading import LinearizableReads
from dledger.scrub import Scrubber
from dledger.service import (
    CheckpointAnswer,
    CheckpointRequest,
    FetchAnswer,
    FetchRequest,
    RefillNotice,
    Report,
    ServiceMessage,
)
from dledger.snapshots import Snapshots
from dledger.standing import Role
from dledger.statemachine import Leadership, StateMachine
from dledger.supply import Supply
from dledger.transport import Transport
from store.entry import HEADER_SIZE, Entry, EntryKind, build_entry
from store.errors import DamagedError, StoreError
from store.filesystem import Bytes
from store.refill import Refill
from store.replica import ReplicaStore
from store.watermarks import Watermarks

log = logging.getLogger(__name__)

APPLY_BYTES_MAX = 4 << 20
APPLY_RETRY_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Executors:
    """The three lanes of disk work."""

    log: Executor
    reads: Executor
    background: Executor


@dataclass(slots=True)
class _Proposal:
    index: int
    term: int
    done: Callable[[ProposeError | None], None]


class Node:
    """Drives :class:`~dledger.raft.Raft` and applies what it commits."""

    def __init__(
        self,
        *,
        node: str,
        voters: Collection[str],
        store: ReplicaStore,
        transport: Transport,
        machine: StateMachine,
        executors: Executors,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        on_fatal: Callable[[BaseException], None],
        config: RaftConfig | None = None,
        sync_flush: bool = True,
        watermarks: Watermarks | None = None,
    ) -> None:
        """``voters`` are the members of a group that begins; none for a node that is to be added to
        one. What the log says overrules them. ``on_fatal`` is told once why the node stopped by
        itself; the process must then end."""
        self.store = store
        self.failure: BaseException | None = None
        self._loop = loop
        self._transport = transport
        self._machine = machine
        self._executors = executors
        self._on_fatal = on_fatal
        self.writer = LogWriter(
            store=store,
            executor=executors.log,
            sync_flush=sync_flush,
            written=self._written,
            failed=self.fail,
        )
        found = store.recovered
        config = config or RaftConfig()
        self.core = Raft(
            node=node,
            configurations=Configurations.recovered(
                voters,
                -1 if found.checkpoint is None else found.checkpoint.index,
                b"" if found.checkpoint is None else found.checkpoint.configuration,
                found.configurations,
            ),
            incarnation=found.incarnation,
            log=RaftLog(
                first_index=found.first_index,
                last_index=found.last_index,
                term_starts=found.term_starts,
                end_position=found.end_position,
                chain_crc=found.last_chain_crc,
                tail=found.tail,
                tail_base=found.tail_base,
                cache_bytes_max=config.cache_bytes_max,
            ),
            segment_size=store.segment_size,
            rng=rng,
            now=loop.time(),
            config=config,
            term=found.term,
            vote=found.vote,
            commit_index=found.commit_index,
        )
        self.keeper = Keeper(node=self, machine=machine, background=executors.background, loop=loop)
        self.fitness = Fitness(
            node=self,
            reads=executors.reads,
            loop=loop,
            watermarks=watermarks or Watermarks(),
            stall_seconds=config.disk_stall_seconds,
        )
        self.reads = LinearizableReads(node=self, loop=loop)
        self.membership = Membership(node=self, loop=loop)
        self._members_from = -1  # the entry from which the transport knows the members
        self.floor = store.read_floor()
        elections = self.core.elections
        elections.votes = elections.campaigns = self.floor < 0
        self.calls = PeerCalls(self, loop)
        self.supply = Supply(
            node=self,
            background=executors.background,
            loop=loop,
            bytes_per_second=config.supply_bytes_per_second,
        )
        self.catch_up = CatchUp(
            node=self, calls=self.calls, background=executors.background, loop=loop
        )
        self.divergence = Divergence(self, self.calls)
        self.scrubber = Scrubber(
            node=self,
            calls=self.calls,
            background=executors.background,
            loop=loop,
            bytes_per_second=config.scrub_bytes_per_second,
            pass_seconds=config.scrub_pass_seconds,
        )
        self.snapshots = Snapshots(node=self, background=executors.background, loop=loop)
        self.applied_index = -1 if found.checkpoint is None else found.checkpoint.index
        self._proposals: deque[_Proposal] = deque()
        self._reading_to_apply = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._leadership = Leadership(Role.FOLLOWER, found.term, None, False)
        self._running = False

    # --- life

    async def start(self) -> None:
        """Restores the state, then joins the group."""
        checkpoint = self.store.recovered.checkpoint
        self._machine.restore(None if checkpoint is None else checkpoint.state)
        self._running = True
        self.keeper.start()
        await self._transport.start(self)
        self.fitness.start()
        self.supply.start()
        self.scrubber.start()
        self._after_event()

    async def stop(self) -> None:
        """Leaves the group, finishes disk work, saves a checkpoint and closes the store."""
        if not self._running:
            return
        self._running = False
        self.fitness.stop()
        self.supply.stop()
        self.scrubber.stop()
        if self._timer is not None:
            self._timer.cancel()
        await self._transport.stop()
        self._drop_proposals()
        self.reads.close()
        self.membership.close()
        if self.failure is None:
            await self.drained()
        if self.failure is None:
            await self.keeper.stop()
        self.store.close()

    async def drained(self) -> None:
        """Returns when all that was handed to the log executor so far is done."""
        drained = self._loop.create_future()
        self._executors.log.submit(lambda: None, lambda _result, _error: drained.set_result(None))
        await drained

    def fail(self, error: BaseException) -> None:
        """Stops at once because what the disk or the group holds can no longer be trusted."""
        if self.failure is not None:
            return
        self.failure = error
        self._drop_proposals()
        if self._timer is not None:
            self._timer.cancel()
        log.critical("%s stops: %s", self.core.node, error)
        self._on_fatal(error)

    # --- what the broker asks

    @property
    def leadership(self) -> Leadership:
        """Role, term, leader and readiness as last announced."""
        return self._leadership

    @property
    def serving(self) -> bool:
        """Leads, and has applied the first entry of its term: proposals are accepted."""
        return self._leadership.serving

    @property
    def held_by_all(self) -> int:
        """The last index that every member holds durably, as far as the leader knows; else -1."""
        replicator = self.core.replicator
        if replicator is None:
            return -1
        matches = [progress.match_index for progress in replicator.peers.values()]
        return min([self.core.durable_index, *matches])

    def propose(
        self,
        body_size: int,
        build: Callable[[int], Sequence[Bytes]],
        done: Callable[[ProposeError | None], None],
    ) -> int:
        """Proposes one DATA entry whose body is exactly ``body_size`` bytes; returns its index.

        ``build(position)`` is called before this returns, with the position of the entry in the
        commit log. ``done(None)`` comes right after the entry is applied; ``done(error)`` when
        leadership ends before, and the outcome is unknown. Raises :class:`ProposeError` if nothing
        was proposed.
        """
        core = self.core
        core.check_may_propose()
        if not self.serving:
            raise NotServingError
        size = HEADER_SIZE + body_size
        position = core.next_position(size)
        if not self._has_room(size):
            raise NoRoomError(size)
        entry = build_entry(
            EntryKind.DATA,
            core.log.last_index + 1,
            core.term,
            position,
            core.log.chain_crc,
            build(position),
        )
        if entry.size != size:
            raise InvariantError(f"an entry of {entry.size} bytes was announced as {size}")
        self._proposals.append(_Proposal(entry.index, entry.term, done))
        core.propose(entry, self._loop.time())
        self._after_event()
        return entry.index

    def _has_room(self, size: int) -> bool:
        """Whether the disk takes ``size`` bytes behind all that waits to be written."""
        return self.store.has_room(self.core.log.end_position - self.store.end_position + size)

    def read(
        self,
        position: int,
        size: int,
        done: Callable[[bytes | None, BaseException | None], None],
    ) -> None:
        """Commit-log bytes that :meth:`read_cached` did not have at hand."""
        self._executors.reads.submit(lambda: self.store.read(position, size), done)

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Commit-log bytes if no disk access is needed for them, else None."""
        return self.store.read_cached(position, size)

    def ask_read_index(self, number: int) -> None:
        """For :class:`~dledger.reading.LinearizableReads`."""
        self.core.read_index(number, self._loop.time())
        self._after_event()

    def after_request(self) -> None:
        """The core was asked for something directly: what comes of it is done."""
        self._after_event()

    # --- events from the transport (TransportHandler)

    def on_message(self, sender: str, message: Message) -> None:
        """See :class:`~dledger.transport.TransportHandler`."""
        if not self._alive:
            return
        if isinstance(message, ServiceMessage):
            self._serve(sender, message)
            return
        if isinstance(message, AppendRequest):
            if self.divergence.found:
                self.catch_up.begin(sender)
                return
            if not self._has_room(message.size):
                # As if lost: the leader asks again, and has its majority elsewhere.
                log.warning("%s has no room for entries of %s", self.core.node, sender)
                return
        try:
            self.core.receive(sender, message, self._loop.time())
            if isinstance(message, AppendRequest):
                self.divergence.accepted()
        except PeerError as error:
            log.error("%s drops a message of %s: %s", self.core.node, sender, error)
            self._transport.reset(sender)
            if isinstance(message, AppendRequest):
                self.divergence.refused(sender, message)
        except InvariantError as error:
            self.fail(error)
            return
        self._after_event()

    def on_peer_connected(self, peer: str) -> None:
        """See :class:`~dledger.transport.TransportHandler`."""
        if self._alive:
            self.core.peer_connected(peer, self._loop.time())
            self._after_event()

    def on_peer_lost(self, peer: str) -> None:
        """See :class:`~dledger.transport.TransportHandler`."""
        if self._alive:
            self.core.peer_lost(peer, self._loop.time())
            self._after_event()

    # --- what nodes do for one another beside the protocol

    def tell(self, peer: str, message: ServiceMessage) -> None:
        """Sends a message that promises nothing; it may be lost."""
        self._transport.send(peer, message)

    def _serve(self, sender: str, message: ServiceMessage) -> None:
        match message:
            case Report():
                self.fitness.received(sender, message)
            case RefillNotice():
                self.catch_up.noticed(sender, message)
            case FetchRequest():
                self.supply.fetch(sender, message)
            case CheckpointRequest():
                self.supply.checkpoint(sender, message)
            case FetchAnswer() | CheckpointAnswer():
                self.calls.answered(sender, message)

    def reopen(self, refill: Refill) -> None:
        """Stops, so that the node can be opened with the log that was gathered.

        From now on nothing is confirmed any more, so what the node says about its old log is final.
        """
        if not self._alive:
            return
        error = self.failure = RefilledError(f"refilled up to entry {refill.next_index - 1}")
        self._drop_proposals()
        if self._timer is not None:
            self._timer.cancel()
        log.warning("%s is opened anew: %s", self.core.node, error)
        last_index = self.core.log.last_index

        def done(_none: None, failed: BaseException | None) -> None:
            self._on_fatal(error if failed is None else failed)

        self._executors.background.submit(lambda: refill.complete(last_index), done)

    def check_floor(self) -> None:
        """Votes again once this node holds durably all that it may ever have confirmed."""
        if not 0 <= self.floor <= self.core.match_index:
            return
        self.floor = -1

        def done(_none: None, error: BaseException | None) -> None:
            if error is not None:
                self.fail(error)

        self._executors.background.submit(self.store.clear_floor, done)

    def yield_leadership(self) -> None:
        """Stops leading, so that another member takes over."""
        self.core.step_down(self._loop.time())
        self._after_event()

    # --- after every event

    @property
    def _alive(self) -> bool:
        return self._running and self.failure is None

    def _after_event(self) -> None:
        effects = self.core.take()
        for envelope in effects.messages:
            self._transport.send(envelope.to, envelope.message)
        for read in effects.reads:
            self._read_for_peer(read)
        if effects.write is not None:
            self.writer.add(effects.write)
        if self.core.configurations.index != self._members_from:
            self._members_changed()
        if self.applied_index < self.core.commit_index:
            self._apply()
        self._announce()
        for answer in effects.read_indexes:
            self.reads.answered(answer)
        self._arm_timer()

    def _members_changed(self) -> None:
        self._members_from = self.core.configurations.index
        found = self.core.configuration
        addresses = {node: address.peer for node, address in found.addresses.items()}
        self._transport.set_peers(found.members, addresses)

    def _arm_timer(self) -> None:
        deadline = self.core.deadline()
        # A deadline that moved later is left alone: the early tick finds nothing due and re-arms.
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
            self._timer = None
        if self._alive:
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._alive:
            self.core.tick(self._loop.time())
            self._after_event()

    def _announce(self) -> None:
        core, before = self.core, self._leadership
        serving = core.role is Role.LEADER and self.applied_index >= core.term_first_index
        if self.membership.busy:
            self.membership.looked()
        if (core.role is before.role and core.term == before.term) and (
            core.leader == before.leader and serving == before.serving
        ):
            return
        now = self._leadership = Leadership(core.role, core.term, core.leader, serving)
        if before.role is Role.LEADER and (now.role is not Role.LEADER or now.term != before.term):
            self._drop_proposals()
        if (before.role, before.leader) != (now.role, now.leader):
            log.info(
                "%s is %s in term %d, leader %s", core.node, now.role.value, now.term, now.leader
            )
        self._machine.leadership_changed(now)

    def _drop_proposals(self) -> None:
        dropped, self._proposals = self._proposals, deque()
        for proposal in dropped:
            proposal.done(OutcomeUnknownError(proposal.index, proposal.term))

    # --- disk

    def _written(self, writes: Sequence[Write]) -> None:
        if not self._alive:
            return
        for write in writes:
            for envelope in write.then:
                self._transport.send(envelope.to, envelope.message)
        self.core.written(writes[-1].id, self._loop.time())
        if self.floor >= 0:
            self.check_floor()
        self._after_event()
        self.keeper.log_grew()

    def expire(self, position: int) -> None:
        """Removes what lies below ``position``, in whole segments."""
        self.keeper.expire(position)

    def _read_for_peer(self, read: Read) -> None:
        def done(entries: list[Entry] | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("cannot read entries from %d: %s", read.first_index, error)
                if not isinstance(error, StoreError):
                    self.fail(error)
                    return
                if isinstance(error, DamagedError):
                    self.scrubber.suspect(read.first_index)
            if self._alive:
                self.core.loaded(read.peer, entries or [], self._loop.time())
                self._after_event()

        self._executors.reads.submit(
            lambda: self.store.read_entries(read.first_index, read.last_index, read.bytes_max),
            done,
        )

    # --- applying

    def _apply(self) -> None:
        if self._reading_to_apply:
            return
        while self.applied_index < self.core.commit_index:
            entry = self.core.log.entry(self.applied_index + 1)
            if entry is None:
                self._read_to_apply()
                return
            if not self._apply_one(entry):
                return
        self.reads.applied()
        core = self.core
        core.log.evict(min(self.applied_index, core.durable_index))

    def _apply_one(self, entry: Entry) -> bool:
        try:
            self._machine.apply(entry)
        except (InvariantError, StoreError, OSError) as error:
            # What is committed cannot be applied, or only in part, because a derived file cannot
            # be read: to go on would be to serve another state. An OSError must not get into the
            # transport either, which would take it for one of its sockets.
            self.fail(error)
            return False
        self.applied_index = entry.index
        self.keeper.applied(entry)
        if entry.kind is EntryKind.CONFIGURATION:
            self.membership.applied(entry.index)
        while self._proposals and self._proposals[0].index <= entry.index:
            proposal = self._proposals.popleft()
            # One append of a new leader can depose this one, replace its entries and commit, all
            # in one event: what stands at the index may be another's.
            if (proposal.index, proposal.term) == (entry.index, entry.term):
                proposal.done(None)
            else:
                proposal.done(OutcomeUnknownError(proposal.index, proposal.term))
        return True

    def _read_to_apply(self) -> None:
        self._reading_to_apply = True
        first = self.applied_index + 1
        last = min(self.core.commit_index, self.core.log.cached_from - 1)
        self._executors.reads.submit(
            lambda: self.store.read_entries(first, last, APPLY_BYTES_MAX), self._read_and_apply
        )

    def _apply_again(self) -> None:
        self._reading_to_apply = False
        if self._alive:
            self._after_event()

    def _read_and_apply(self, entries: list[Entry] | None, error: BaseException | None) -> None:
        self._reading_to_apply = False
        if isinstance(error, DamagedError) and self._alive:
            log.error("%s cannot apply: %s", self.core.node, error)
            self.scrubber.suspect(self.applied_index + 1)
            self._reading_to_apply = True
            self._loop.call_later(APPLY_RETRY_SECONDS, self._apply_again)
            return
        if error is not None:
            self.fail(error)
            return
        if not self._alive:
            return
        for entry in entries or ():
            if not self._apply_one(entry):
                return
        self.reads.applied()
        self._after_event()
