"""What the queues of a topic hold on this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.machine import BrokerStateMachine
from broker.topics import TopicConfig


class QueueRange(NamedTuple):
    """The offsets of a queue's messages: from ``first`` up to below ``end``."""

    first: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.first


EMPTY_QUEUE = QueueRange(0, 0)
"""A queue that never had a message."""


@dataclass(frozen=True, slots=True)
class TopicContents:
    """One topic, and the queues of it that consumers can read and that ever had a message."""

    config: TopicConfig
    queues: Mapping[int, QueueRange]
    messages: int
    """In those queues."""

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
    """Every queue that the topic has, read or written, whether it had a message or not."""
    queues = machine.queues(config.name)
    ranges = dict.fromkeys(range(max(config.read_queues, config.write_queues)), EMPTY_QUEUE)
    for queue_id, queue in queues.items():
        if queue_id in ranges:
            ranges[queue_id] = QueueRange(queue.first_offset, queue.end_offset)
    return ranges
