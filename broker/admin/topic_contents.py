"""The messages in the queues of a topic on this node."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from broker.limits import ADMIN
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import TopicConfig


class QueueRange(NamedTuple):
    """The offsets of a queue's messages, from ``first`` to below ``end``."""

    first: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.first


EMPTY_QUEUE = QueueRange(0, 0)
"""A queue that has never had a message."""


class TopicContents(NamedTuple):
    """One topic, with its readable queues that have had a message."""

    config: TopicConfig
    queues: Mapping[int, QueueRange]
    messages: int
    """The number of messages in these queues."""

    @classmethod
    def of(cls, machine: BrokerStateMachine, config: TopicConfig) -> TopicContents:
        queues = {
            queue_id: QueueRange(queue.first_offset, queue.end_offset)
            for queue_id, queue in sorted(machine.queues(config.name).items())
            if queue_id < config.read_queues
        }
        return cls(config, queues, sum(queue.messages for queue in queues.values()))


def all_topics(machine: BrokerStateMachine) -> list[TopicContents]:
    """Every topic, by name."""
    return [TopicContents.of(machine, config) for _, config in sorted(machine.state.topics.items())]


def queue_ranges(machine: BrokerStateMachine, config: TopicConfig) -> dict[int, QueueRange]:
    """The listed queues of a topic, readable or writable, in order."""
    count = max(config.read_queues, config.write_queues)
    found = {
        queue_id: QueueRange(queue.first_offset, queue.end_offset)
        for queue_id, queue in machine.queues(config.name).items()
        if queue_id < count
    }
    return {each: found.get(each, EMPTY_QUEUE) for each in listed_queues(count, found)}


def listed_queues(count: int, found: Collection[int]) -> Collection[int]:
    """The listed queues of a topic with ``count`` queues, in order. All are listed if they are few,
    as in RocketMQ. Otherwise the first ones and those in ``found`` are."""
    if count <= ADMIN.empty_queues_max:
        return range(min(count, ADMIN.empty_queues_max))
    return sorted({0, *found})
