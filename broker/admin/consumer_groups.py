"""The consumer groups and their lag.

A group exists if it has a configuration, members connected here, or a committed offset.

A group is expected to consume every message of every readable queue. So without a committed offset
all messages of a queue are lag: RocketMQ counts from 0 there, and a consumer that begins at the end
commits that offset at once. Expired messages are not lag, because nobody can consume them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from broker.admin.topic_contents import EMPTY_QUEUE, TopicContents, listed_queues
from broker.delivery.store_times import Place
from broker.errors import RefusedError
from broker.limits import ADMIN, AdminLimits
from broker.remoting.connected_clients import ConnectedClients, ConsumerGroup
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import retry_topic

BROADCASTING = "BROADCASTING"


class TooManyQueuesError(RefusedError):
    """An answer would list too many queues."""

    def __init__(self, queues_max: int) -> None:
        super().__init__(
            f"the answer would list more than {queues_max} queues; ask for one group and one topic"
        )


def _position(committed: int, first: int, end: int) -> int:
    """The offset of the next pull: an expired offset continues at the first message, and an offset
    behind the queue at its end."""
    return min(max(committed, first), end)


class QueueProgress(NamedTuple):
    """The progress of a group in one queue with the offsets from ``first`` to below ``end``."""

    topic: str
    queue_id: int
    first: int
    end: int
    committed: int | None

    @property
    def position(self) -> int:
        """The offset at which the group continues."""
        return _position(self.committed or 0, self.first, self.end)

    @property
    def lag(self) -> int:
        """The number of messages that the group has still to consume."""
        return self.end - self.position


def waiting_places(queues: Iterable[QueueProgress]) -> list[Place]:
    """The next message of each queue with lag: the ones that wait longest."""
    return [(queue.topic, queue.queue_id, queue.position) for queue in queues if queue.lag]


class TopicProgress(NamedTuple):
    """The progress of a group in one topic."""

    contents: TopicContents
    committed: Mapping[int, int]
    """The committed offsets of readable queues, by queue id."""
    broadcast: bool
    """Whether the members keep their offsets themselves, so that the lag is unknown here."""

    @property
    def topic(self) -> str:
        return self.contents.config.name

    @property
    def acknowledged(self) -> int:
        """The sum of the committed offsets; an offset behind the end of its queue counts as the
        end."""
        queues = self.contents.queues
        return sum(
            min(offset, queues.get(queue_id, EMPTY_QUEUE).end)
            for queue_id, offset in self.committed.items()
        )

    @property
    def lag(self) -> int | None:
        """The lag of all queues; None if unknown here.

        Takes a step for each committed offset, not for each queue, so that a list of many groups is
        cheap.
        """
        if self.broadcast:
            return None
        queues = self.contents.queues
        consumed = 0
        for queue_id, committed in self.committed.items():
            if queue_id in queues:
                first, end = queues[queue_id]
                consumed += _position(committed, first, end) - first
        return self.contents.messages - consumed

    def queues(self) -> list[QueueProgress]:
        """The readable queues, in order (see :func:`listed_queues`)."""
        found = self.contents.queues
        listed = listed_queues(
            self.contents.config.read_queues, found.keys() | self.committed.keys()
        )
        return [
            QueueProgress(
                self.topic,
                queue_id,
                *found.get(queue_id, EMPTY_QUEUE),
                self.committed.get(queue_id),
            )
            for queue_id in listed
        ]


class GroupProgress(NamedTuple):
    """One consumer group, by the state of this node."""

    name: str
    configured: bool
    members: list[str]
    """The ids of the clients connected here."""
    topics: list[TopicProgress]


class ConsumerGroups:
    """The consumer groups of one broker.

    Each answer reads the applied state; nothing is cached.
    """

    def __init__(
        self, machine: BrokerStateMachine, clients: ConnectedClients, limits: AdminLimits = ADMIN
    ) -> None:
        self._machine = machine
        self._clients = clients
        self._limits = limits

    def names(self) -> list[str]:
        """The names of all groups, in order."""
        state = self._machine.state
        committed = (group for group, _ in state.offsets)
        return sorted({*state.groups, *committed, *self._clients.consumers})

    def all(self) -> Iterator[GroupProgress]:
        """Every group with every topic that it consumes. Groups are computed one by one, so a long
        list may be taken in parts."""
        topics = self._topics_by_group()
        contents: dict[str, TopicContents | None] = {}
        for name in sorted(topics):
            if self._exists(name, topics[name]):
                yield self._group(name, topics[name], contents)

    def find(self, name: str) -> GroupProgress | None:
        """One group; None if it does not exist."""
        state = self._machine.state
        topics = {topic for group, topic in state.offsets if group == name}
        if not self._exists(name, topics):
            return None
        return self._group(name, topics | self._subscribed(name), {})

    def find_in(self, name: str, topic: str) -> GroupProgress:
        """One group in one topic. The group may be unknown here: it may be on other brokers."""
        return self._group(name, [topic], {})

    def progress(self, name: str, topic: str) -> TopicProgress | None:
        """The progress of one group in one topic, whether the group consumes it or not; None
        without the topic."""
        return self._topic(name, topic, self._clients.consumers.get(name), {})

    def of_topic(self, topic: str) -> list[str]:
        """The groups that have an offset in a topic or a connected subscription to it, in order."""
        committed = {group for group, of in self._machine.state.offsets if of == topic}
        connected = {
            name for name, group in self._clients.consumers.items() if topic in group.subscriptions
        }
        return sorted(committed | connected)

    def topics_of(self, name: str) -> list[str]:
        """The topics in which a group has an offset or a connected subscription, in order."""
        committed = {topic for group, topic in self._machine.state.offsets if group == name}
        found = self._clients.consumers.get(name)
        return sorted(committed.union(() if found is None else found.subscriptions))

    def list_queues(self, topics: Iterable[TopicProgress]) -> list[QueueProgress]:
        """The queues of topics whose lag is known. Raises :class:`TooManyQueuesError`."""
        listed: list[QueueProgress] = []
        for topic in topics:
            if topic.broadcast:
                continue
            listed += topic.queues()
            if len(listed) > self._limits.queues_listed_max:
                raise TooManyQueuesError(self._limits.queues_listed_max)
        return listed

    # --- inside

    def _exists(self, name: str, topics: Iterable[str]) -> bool:
        """Whether a group exists. ``topics`` are those in which it may have an offset."""
        state = self._machine.state
        return (
            name in state.groups
            or name in self._clients.consumers
            or any((name, topic) in state.offsets for topic in topics)
        )

    def _topics_by_group(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {name: self._subscribed(name) for name in self.names()}
        for group, topic in self._machine.state.offsets:
            found[group].add(topic)
        return found

    def _subscribed(self, name: str) -> set[str]:
        """The subscribed topics of the members, and the retry topic once it has a message."""
        members = self._clients.consumers.get(name)
        topics = set(() if members is None else members.subscriptions)
        if self._machine.queues(retry_topic(name)):
            topics.add(retry_topic(name))
        return topics

    def _group(
        self, name: str, topics: Iterable[str], contents: dict[str, TopicContents | None]
    ) -> GroupProgress:
        members = self._clients.consumers.get(name)
        progress = [self._topic(name, topic, members, contents) for topic in sorted(topics)]
        return GroupProgress(
            name,
            configured=name in self._machine.state.groups,
            members=[] if members is None else members.client_ids(),
            topics=[found for found in progress if found is not None],
        )

    def _topic(
        self,
        name: str,
        topic: str,
        members: ConsumerGroup | None,
        contents: dict[str, TopicContents | None],
    ) -> TopicProgress | None:
        """The progress in a topic; None if the topic was deleted (its offsets stay for a new topic
        of that name)."""
        if topic not in contents:
            config = self._machine.state.topics.get(topic)
            contents[topic] = None if config is None else TopicContents.of(self._machine, config)
        found = contents[topic]
        if found is None:
            return None
        committed = self._machine.state.offsets.get((name, topic), {})
        return TopicProgress(
            found,
            {
                queue_id: offset
                for queue_id, offset in committed.items()
                if queue_id < found.config.read_queues
            },
            broadcast=members is not None and members.settings.message_model == BROADCASTING,
        )
