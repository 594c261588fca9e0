"""Counts the situations in which promises are tested, as coverage marks. It checks no promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.raft.configuration import LOST_INCARNATION, NO_INCARNATION
from dledger.raft.messages import AppendRejected, AppendRequest
from dledger.raft.raft_state import Role
from dledger.wire.transport import Message
from simulator.invariants.invariant import ChangedPart, Invariant
from store.log.layout import segment_start

if TYPE_CHECKING:
    from dledger.raft.view import RaftView
    from simulator.hosts.host import Host


class Coverage(Invariant):
    """Compares a node after each event with the node before it."""

    step_parts = ChangedPart.LOG | ChangedPart.RAFT_STATE
    sent_kinds = (AppendRejected,)
    received_kinds = (AppendRequest,)

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._before: dict[tuple[str, int], tuple[Role, int, int]] = {}
        self._members = (-1, dict[str, int]())

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        assert host.node is not None  # noqa: S101 - it is just made
        found = host.node.store.recovered
        if found.torn_bytes_cut:
            host.coverage_mark("torn tail cut")
        if found.checkpoint is not None:
            host.coverage_mark("started from a checkpoint")
        if found.last_index > found.commit_index:
            host.coverage_mark("started with entries that may be dropped")

    def sends(self, host: Host, _peer: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if isinstance(message, AppendRejected) and message.hint_index >= 0:
            host.coverage_mark("logs did not meet")

    def receives(self, host: Host, _sender: str, message: Message) -> None:
        """See :class:`Invariant`."""
        if not isinstance(message, AppendRequest) or host.node is None:
            return
        if message.prev_index < host.node.core.entry_cache.first_index - 1:
            host.coverage_mark("sent again what was given up")

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        if host.node is None:
            return
        core = host.node.core
        log, size = core.entry_cache, host.segment_size
        if core.role is Role.LEADER and core.configurations.index > self._members[0]:
            self._look_at_members(host, core)
        role, last_index, end_position = self._before.get(
            (host.name, host.boot), (core.role, log.last_index, log.end_position)
        )
        self._before[host.name, host.boot] = (core.role, log.last_index, log.end_position)
        if role is Role.LEADER and core.role is not Role.LEADER:
            host.coverage_mark("leader stepped down")
            if any(
                each.node and each.node.snapshot_receiver.source == host.name
                for each in self._hosts
            ):
                host.coverage_mark("leader stepped down while it refilled a follower")
        if role is Role.CANDIDATE and core.role is Role.FOLLOWER:
            host.coverage_mark("candidate gave up")
        if log.last_index < last_index or log.end_position < end_position:
            host.coverage_mark("entries dropped")
            if segment_start(log.end_position, size) < segment_start(end_position, size):
                host.coverage_mark("entries dropped over a segment's start")
        elif segment_start(log.end_position, size) > segment_start(end_position, size):
            host.coverage_mark("segment rolled")

    def _look_at_members(self, host: Host, core: RaftView) -> None:
        """For each configuration that a leader adds: the disks on which its voters count."""
        _, before = self._members
        found = dict(core.configuration.incarnations)
        self._members = (core.configurations.index, {**before, **found})
        for name, incarnation in found.items():
            if incarnation == LOST_INCARNATION != before.get(name, NO_INCARNATION):
                host.coverage_mark("disk recognised that lacks what it held")
            if incarnation > LOST_INCARNATION and before.get(name, incarnation) != incarnation:
                host.coverage_mark("voter counts again on another disk")
