"""The first offset of a group in a queue without a committed offset."""

from __future__ import annotations

from broker.delivery.replica_selection import ReplicaSelection
from broker.state.state_machine import BrokerStateMachine
from store.message.batch import QUEUE_ROW


def begins_at_end(
    machine: BrokerStateMachine, replicas: ReplicaSelection, topic: str, queue_id: int
) -> bool:
    """Whether a group that starts at the newest messages starts at the end of the queue. By
    RocketMQ's rule it does if the first message has expired or is no longer in memory. Otherwise it
    starts at 0."""
    queue = machine.queue(topic, queue_id)
    if queue is None or queue.first_offset > 0:
        return queue is not None
    row = queue.read(0, 1)
    if not row:
        return False
    position, _size, _code = QUEUE_ROW.unpack(row)
    return replicas.is_far(position, machine.applied_end)
