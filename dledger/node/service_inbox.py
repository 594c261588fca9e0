"""Which part of a node deals with which message beside the protocol."""

from __future__ import annotations

import asyncio

from dledger.node.health import HealthMonitor
from dledger.node.member_removal import MemberRemoval
from dledger.node.peer_calls import PeerCalls
from dledger.node.snapshot_receiver import SnapshotReceiver
from dledger.node.snapshot_sender import SnapshotSender
from dledger.node.state_divergence import StateDivergence
from dledger.wire.service_messages import (
    CheckpointRequest,
    CheckpointResponse,
    FetchRequest,
    FetchResponse,
    HealthReport,
    RemovedNotice,
    ServiceMessage,
    SnapshotNeededNotice,
    StateReport,
)


class ServiceInbox:
    """Of one node. On the event loop."""

    def __init__(
        self,
        *,
        health: HealthMonitor,
        removal: MemberRemoval,
        snapshot_receiver: SnapshotReceiver,
        snapshot_sender: SnapshotSender,
        state_divergence: StateDivergence,
        calls: PeerCalls,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._health = health
        self._removal = removal
        self._snapshot_receiver = snapshot_receiver
        self._snapshot_sender = snapshot_sender
        self._state_divergence = state_divergence
        self._calls = calls
        self._loop = loop

    def received(self, sender: str, message: ServiceMessage) -> None:
        """Hands a message to the part that deals with it."""
        match message:
            case HealthReport():
                self._health.received(sender, message)
            case SnapshotNeededNotice():
                self._snapshot_receiver.noticed(sender, message)
            case RemovedNotice():
                self._removal.received(sender, message, self._loop.time())
            case StateReport():
                self._state_divergence.on_report(sender, message)
            case FetchRequest():
                self._snapshot_sender.fetch(sender, message)
            case CheckpointRequest():
                self._snapshot_sender.checkpoint(sender, message)
            case FetchResponse() | CheckpointResponse():
                self._calls.answered(sender, message)
