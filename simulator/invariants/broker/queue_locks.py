"""A queue of an ordered group has one owner at a time, and its messages come in order.

Only the leader has the locks, as in RocketMQ: a new leader knows none. So this check ignores locks
that different leaders, or one leader in different terms, have granted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.client.message import MessageQueue
from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.invariant import ChangedPart, Invariant
from simulator.workload.push_listener import LockRequest, PushListener

if TYPE_CHECKING:
    from simulator.hosts.host import Host

LOCK_SECONDS = 50.0
"""A lock lives for 60 seconds of the broker's clock, which may be fast."""

LOCK_SECONDS_MAX = 65.0
"""How long it lives by a slow clock, from when it was asked for."""

SETTLED_SECONDS = 5.0
"""A client's release of a lock may arrive so late, behind its next request."""


@dataclass(slots=True)
class _Grant:
    owner: str
    asked: LockRequest
    known_at: float


class OneLockOwner(Invariant, PushListener):
    """Follows the locks of one group. ``now`` gives virtual seconds."""

    step_parts = ChangedPart.RAFT_STATE

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._leads: dict[str, int] = {}
        self._grants: dict[MessageQueue, _Grant] = {}
        self._given_up: dict[tuple[str, MessageQueue], float] = {}
        self._consuming: dict[MessageQueue, dict[str, LockRequest]] = {}
        self._last: dict[tuple[str, MessageQueue], int] = {}
        self._asked: dict[tuple[str, MessageQueue], float] = {}
        self._left: dict[tuple[str, MessageQueue], float] = {}
        """What processes that died had asked for, and not their owner's next one, with the time."""

    def booted(self, host: Host) -> None:
        """See :class:`Invariant`."""
        self._leads.pop(host.addresses[1], None)

    def stepped(self, host: Host) -> None:
        """See :class:`Invariant`."""
        address = host.addresses[1]
        if host.node is not None and host.node.core.role is Role.LEADER:
            self._leads[address] = host.node.core.term
        else:
            self._leads.pop(address, None)

    # --- what clients do

    def asks(self, consumer: str, queue: MessageQueue, address: str) -> LockRequest:
        """A lock is about to be asked for at this leader."""
        owner, now = consumer.partition(".")[0], self._now()
        self._asked[owner, queue] = now
        self._left.pop((owner, queue), None)
        return LockRequest(now, address, self._leads.get(address, -1))

    def locked(self, consumer: str, queue: MessageQueue, asked: LockRequest) -> LockRequest | None:
        """It is granted; None if the leader of that address was another process meanwhile."""
        now, owner = self._now(), consumer.partition(".")[0]
        given_up = self._given_up.get((owner, queue), -SETTLED_SECONDS)
        if asked.term < 0 or self._leads.get(asked.address) != asked.term:
            return None
        if asked.at - given_up < SETTLED_SECONDS:
            return None
        held = self._grants.get(queue)
        if held is not None and (held.asked.address, held.asked.term) == (
            asked.address,
            asked.term,
        ):
            if held.owner == owner:
                held.asked = asked
                return asked
            if held.known_at < asked.at and now - held.asked.at < LOCK_SECONDS:
                raise Violation(
                    f"{owner} is granted {queue.topic}/{queue.queue_id} in term {asked.term}, and "
                    f"{held.owner} holds it"
                )
        self._grants[queue] = _Grant(owner, asked, now)
        return asked

    def unlocks(self, consumer: str, queue: MessageQueue) -> None:
        """It is about to be given up."""
        owner = consumer.partition(".")[0]
        self._given_up[owner, queue] = self._now()
        held = self._grants.get(queue)
        if held is not None and held.owner == owner:
            del self._grants[queue]

    def takes(self, consumer: str, queue: MessageQueue) -> None:
        """It begins with the queue, anywhere."""
        self._last.pop((consumer, queue), None)

    def begins(
        self, consumer: str, queue: MessageQueue, offset: int, lock: LockRequest | None
    ) -> None:
        """It begins with a message. A consumer that waits for the next attempt begins with the same
        message again."""
        last = self._last.get((consumer, queue), -1)
        if offset < last:
            raise Violation(
                f"{consumer} consumes {offset} of {queue.topic}/{queue.queue_id} after {last}"
            )
        self._last[consumer, queue] = offset
        others = self._consuming.setdefault(queue, {})
        if lock is None:
            return
        for other, held in others.items():
            if (held.address, held.term) == (lock.address, lock.term):
                raise Violation(
                    f"{consumer} and {other} consume {queue.topic}/{queue.queue_id} at once"
                )
        others[consumer] = lock

    def ends(self, consumer: str, queue: MessageQueue) -> None:
        """It is done with the message."""
        self._consuming.get(queue, {}).pop(consumer, None)

    def client_ended(self, client: str) -> None:
        """Its process died, and gives up no lock."""
        for owner, queue in [key for key in self._asked if key[0] == client]:
            self._left[owner, queue] = self._asked.pop((owner, queue))
        for consuming in self._consuming.values():
            for consumer in [each for each in consuming if each.partition(".")[0] == client]:
                del consuming[consumer]

    def may_be_left_locked(self, queue: MessageQueue) -> bool:
        """Whether a process that died may have left a lock which nobody renews or gives up.

        RocketMQ's broker waits until such a lock expires: a connection that closes does not say
        that its client consumes no more.
        """
        now = self._now()
        return any(
            left == queue and now - asked_at < LOCK_SECONDS_MAX
            for (_owner, left), asked_at in self._left.items()
        )
