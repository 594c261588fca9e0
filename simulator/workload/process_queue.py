"""A queue that belongs to one member of a group for now."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.client.message import MessageQueue
from simulator.workload.push_listener import LockRequest
from store.message.record import MessageRecord


@dataclass(slots=True)
class ProcessQueue:
    """A queue that is this member's: Java's ``ProcessQueue``."""

    queue: MessageQueue
    next_offset: int
    done: int
    """All offsets before it are done."""
    waiting: dict[int, MessageRecord] = field(default_factory=dict)
    dropped: bool = False
    busy: bool = False
    lock: LockRequest | None = None
    locked_at: float = -1.0
