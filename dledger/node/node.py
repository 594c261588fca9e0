"""One member of a group: its parts, what joins them, and how they begin and end.

All of it runs on one event loop. Disk work goes to executors: ``log`` writes and syncs (one job at
a time, everything that arrived meanwhile goes with the next: group commit), ``reads`` serves what
is not in memory, ``background`` saves checkpoints and marks and prepares segments. The core never
waits for any of them, so heartbeats leave on time however slow the disk is. If the kernel writes
the log without a thread, handing over the bytes takes a moment. If a disk takes longer for that,
the log thread does it (:mod:`store.io.async_io`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from dledger.config import RaftConfig
from dledger.errors import ProposeError
from dledger.node.applier import Applier
from dledger.node.checked_reads import CheckedReads
from dledger.node.checkpointer import Checkpointer
from dledger.node.core_driver import CoreDriver
from dledger.node.executor import Executors
from dledger.node.health_monitor import HealthMonitor
from dledger.node.leadership_announcer import LeadershipAnnouncer
from dledger.node.lifecycle import Lifecycle
from dledger.node.linearizable_reads import LinearizableReads
from dledger.node.log_divergence import LogDivergence
from dledger.node.log_writer import LogWriter
from dledger.node.member_features import MemberFeatures
from dledger.node.member_removal import MemberRemoval
from dledger.node.membership_changes import Membership
from dledger.node.online_snapshot import OnlineSnapshots
from dledger.node.peer_calls import PeerCalls
from dledger.node.peer_health import PeerHealth
from dledger.node.peer_links import PeerLinks
from dledger.node.proposals import Proposals
from dledger.node.recovered_core import recovered_core
from dledger.node.scrubber import Scrubber
from dledger.node.snapshot_receiver import SnapshotReceiver
from dledger.node.snapshot_sender import SnapshotSender
from dledger.node.state_divergence import StateDivergence
from dledger.node.state_machine import Leadership, StateMachine
from dledger.node.unhealthy_leader import UnhealthyLeader
from dledger.raft.health import OwnHealth
from dledger.raft.raft_state import Chance
from dledger.raft.ready import Write
from dledger.raft.view import RaftView
from dledger.wire.service_messages import ServiceMessage
from dledger.wire.transport import Transport
from store.io.disk_watermarks import DiskWatermarks
from store.io.filesystem import Bytes
from store.replica import ReplicaStore


class Node:
    """The core (:class:`~dledger.raft.core.Raft`), what drives it, and everything else a member
    does. No part knows the node. Each part gets what it needs from the others, mostly as callables.
    """

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
        rng: Chance,
        on_fatal: Callable[[BaseException], None],
        config: RaftConfig | None = None,
        sync_flush: bool = True,
        watermarks: DiskWatermarks | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """``voters`` are the members of a group that begins; none for a node that is to be added to
        one. The log overrules them. ``on_fatal`` is called once with the reason if the node stops
        by itself; the process must then end. ``clock`` gives seconds for latencies. It may be finer
        than the loop's time, which is the default and may be the same for a whole turn."""
        config = config or RaftConfig()
        clock = clock or loop.time
        self.store = store
        self._loop = loop
        self._transport = transport
        self._machine = machine
        self._lifecycle = life = Lifecycle(node=node, on_silent=self._silent, on_fatal=on_fatal)
        background, send = executors.background, transport.send

        def advance() -> None:
            self.driver.advance()

        def written(writes: Sequence[Write]) -> None:
            self.driver.written(writes)

        self.writer = LogWriter(
            store=store,
            executor=executors.log,
            sync_flush=sync_flush,
            clock=clock,
            written=written,
            failed=life.fail,
        )
        vote_floor = store.read_vote_floor()
        core = recovered_core(
            node=node,
            voters=voters,
            store=store,
            rng=rng,
            now=loop.time(),
            config=config,
            sync_flush=sync_flush,
            health=OwnHealth(
                holds_confirmed=vote_floor < 0, intact=not store.recovered.cut_entries
            ),
        )
        self.core: RaftView = core
        self.features = MemberFeatures(
            node=node,
            serves=core.serves,
            members=lambda: core.configuration.members,
            members_at=lambda index: core.configurations.at(index).members,
        )
        self.links = PeerLinks(loop)
        calls = PeerCalls(send=send, loop=loop, lifecycle=life)
        peers = PeerHealth(core, loop)
        unhealthy_leader = UnhealthyLeader(core=core, loop=loop, peers=peers, advance=advance)
        self.state_divergence = StateDivergence(
            core=core,
            store=store,
            calls=calls,
            background=background,
            loop=loop,
            lifecycle=life,
            stop_serving=self._stop_serving,
            transfer_leadership=unhealthy_leader.transfer,
            advance=advance,
        )
        self.scrubber = Scrubber(
            core=core,
            store=store,
            calls=calls,
            background=background,
            loop=loop,
            lifecycle=life,
            bytes_per_second=config.scrub_bytes_per_second,
            pass_seconds=config.scrub_pass_seconds,
            damaged_changed=lambda damaged: self.health.set_damaged(damaged=damaged),
        )
        self.snapshot_sender = SnapshotSender(
            core=core,
            store=store,
            background=background,
            reads=executors.reads,
            loop=loop,
            bytes_per_second=config.snapshot_bytes_per_second,
            lifecycle=life,
            jobs_done=lambda: self.writer.jobs_done,
            state_wrong=self._state_wrong,
            suspect=self.scrubber.suspect,
            send=send,
            advance=advance,
        )
        self.snapshot_receiver = SnapshotReceiver(
            core=core,
            store=store,
            calls=calls,
            background=background,
            loop=loop,
            lifecycle=life,
            vote_floor=vote_floor,
            diverged=lambda: self.divergence.found,
        )
        self.divergence = LogDivergence(core=core, calls=calls, refill=self.snapshot_receiver.begin)
        self.health = HealthMonitor(
            core=core,
            store=store,
            writer=self.writer,
            reads=executors.reads,
            loop=loop,
            lifecycle=life,
            watermarks=watermarks or DiskWatermarks(),
            stall_seconds=config.disk_stall_seconds,
            peers=peers,
            unhealthy_leader=unhealthy_leader,
            holds_confirmed=lambda: self.snapshot_receiver.vote_floor < 0,
            contradicts_group=lambda: self.divergence.found or bool(self.state_divergence.wrong),
            on_look=self._look,
            send=send,
            advance=advance,
        )
        self.proposals = Proposals(
            core=core,
            loop=loop,
            clock=clock,
            serving=lambda: self.serving,
            has_room=self.has_room,
            no_room=self.health.disk.no_room,
        )
        self.checkpointer = Checkpointer(
            core=core,
            store=store,
            writer=self.writer,
            machine=machine,
            background=background,
            loop=loop,
            lifecycle=life,
            log_drained=self._drained,
            state_wrong=self._state_wrong,
        )
        self.announcer = LeadershipAnnouncer(
            core=core,
            machine=machine,
            applied_index=lambda: self.applied_index,
            state_wrong=self._state_wrong,
            leadership_ended=self.proposals.drop,
        )
        self.reads = LinearizableReads(
            core=core,
            loop=loop,
            applied_index=lambda: self.applied_index,
            state_wrong=self._state_wrong,
            advance=advance,
        )
        self.membership = Membership(core=core, loop=loop, advance=advance)
        self.removal = MemberRemoval(core=core, send=send)
        self.checked_reads = CheckedReads(
            store=store,
            reads=executors.reads,
            applied_index=lambda: self.applied_index,
            suspect=self.scrubber.suspect,
            suspect_derived=self.scrubber.suspect_derived,
            repair_index=self.scrubber.repair_index,
        )
        self.applier = Applier(
            core=core,
            store=store,
            machine=machine,
            reads=executors.reads,
            loop=loop,
            clock=clock,
            lifecycle=life,
            announcer=self.announcer,
            noted=self.checkpointer.applied,
            configured=self._configured,
            answered=self.proposals.applied,
            caught_up=self.reads.applied,
            suspect=self.scrubber.suspect,
            suspect_derived=self.checked_reads.suspect_derived,
            unrepaired=self.state_divergence.cannot_follow,
            transfer_leadership=unhealthy_leader.transfer,
            advance=advance,
        )
        self.snapshots = OnlineSnapshots(
            store=store,
            checkpoint_then=self.checkpointer.checkpoint_then,
            background=background,
            loop=loop,
        )
        self.driver = CoreDriver(
            core=core,
            loop=loop,
            lifecycle=life,
            transport=transport,
            writer=self.writer,
            applier=self.applier,
            announcer=self.announcer,
            membership=self.membership,
            removal=self.removal,
            reads=self.reads,
            health=self.health,
            features=self.features,
            links=self.links,
            divergence=self.divergence,
            snapshot_sender=self.snapshot_sender,
            snapshot_receiver=self.snapshot_receiver,
            checkpointer=self.checkpointer,
            has_room=self.has_room,
            state_divergence=self.state_divergence,
            calls=calls,
        )

    # --- life

    async def start(self) -> None:
        """Restores the state, then joins the group."""
        checkpoint = self.store.recovered.checkpoint
        self._machine.restore(None if checkpoint is None else checkpoint.state)
        self._lifecycle.begin()
        self.checkpointer.start()
        await self._transport.start(self.driver)
        self.health.start()
        self.scrubber.start()
        self.removal.start()
        self.driver.advance()

    async def stop(self) -> None:
        """Leaves the group, finishes disk work, saves a checkpoint and closes the store."""
        if not self._lifecycle.running:
            return
        self._lifecycle.end()
        self.health.stop()
        self.scrubber.stop()
        self.driver.stop()
        await self._transport.stop()
        self.proposals.drop()
        self.reads.close()
        self.membership.close()
        if self.failure is None:
            await self._drained()
        if self.failure is None:
            await self.checkpointer.stop()
        self.store.close()

    async def _drained(self) -> None:
        """Returns when the log writer has written everything."""
        drained = self._loop.create_future()
        self.writer.drain(lambda: drained.set_result(None))
        await drained

    @property
    def failure(self) -> BaseException | None:
        """Why it stopped by itself, if it did."""
        return self._lifecycle.failure

    @property
    def alive(self) -> bool:
        """Whether it takes part: started, and neither stopped nor failed."""
        return self._lifecycle.alive

    def fail(self, error: BaseException) -> None:
        """Stops at once because what the disk or the group holds can no longer be trusted."""
        self._lifecycle.fail(error)

    def _silent(self) -> None:
        self.proposals.drop()
        self.driver.stop()

    def send(self, peer: str, message: ServiceMessage) -> None:
        """Sends a message that promises nothing; it may be lost."""
        self._transport.send(peer, message)

    # --- what its parts ask

    def _state_wrong(self) -> str:
        return self.state_divergence.wrong

    def _stop_serving(self) -> None:
        self.announcer.announce()
        self.reads.close()
        self.health.state_wrong()

    def _look(self) -> None:
        self.snapshot_receiver.look()
        self.snapshot_sender.look()
        self.removal.look(self._loop.time())

    def _configured(self, index: int) -> None:
        self.membership.applied(index)
        self.removal.applied(index)

    # --- what the broker asks

    @property
    def leadership(self) -> Leadership:
        """Role, term, leader and readiness as last announced."""
        return self.announcer.leadership

    @property
    def serving(self) -> bool:
        """Leads, and has applied the first entry of its term: proposals are accepted."""
        return self._lifecycle.alive and self.announcer.leadership.serving

    @property
    def applied_index(self) -> int:
        """The last entry that is applied here."""
        return self.applier.applied_index

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
        index = self.proposals.add(body_size, build, done)
        self.driver.advance()
        return index

    def has_room(self, size: int) -> bool:
        """Whether the disk has room for ``size`` bytes more than what waits to be written."""
        return self.store.has_room(
            self.core.entry_cache.end_position - self.store.end_position + size
        )
