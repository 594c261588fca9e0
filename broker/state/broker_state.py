"""The broker's state: topics, groups, consumer offsets and more, a function of the committed log.

Messages are not part of it: they are in the commit log and found through the ConsumeQueues. Equal
logs give equal states, and equal states give equal bytes. So replicas can be compared by these
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import attrgetter

import msgpack

from broker.state.commands import (
    CheckTransaction,
    Command,
    CommitOffset,
    DeleteGroup,
    DeleteTopic,
    EndTransaction,
    Expire,
    PopAck,
    PopChange,
    PopCommand,
    PopForget,
    PopReceive,
    PopWait,
    PutAccess,
    PutGroup,
    PutSetting,
    PutTopic,
    PutTopicRetention,
    Recall,
    Schedule,
    Timer,
)
from broker.state.deduplication_window import RecentRequests
from broker.state.open_transactions import OpenTransaction
from broker.state.pop_queues import PopQueue, PopQueues, unpack_runs, unpack_waiting
from broker.state.recalled_messages import RecalledMessages
from broker.topics_and_groups import AUTO_CREATE_TEMPLATE, SYSTEM_TOPICS, GroupConfig, TopicConfig
from dledger.errors import InvariantError, SafetyProperty

STATE_VERSION = 2
STATE_VERSION_WITHOUT_PARTS = 1

_PARTS = frozenset(
    ("access", "pop", "recalled", "requests", "schedule", "settings", "timer", "transactions")
)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Counts the changes of a table; NameServers and clients compare it to see a change."""

    counter: int = 0
    timestamp_ms: int = 0

    def next(self, timestamp_ms: int) -> DataVersion:
        return DataVersion(self.counter + 1, timestamp_ms)

    def as_json(self) -> dict[str, object]:
        return {"counter": self.counter, "timestamp": self.timestamp_ms}


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """Timed messages are delivered up to ``deliver_ms`` and, at that time, up to ``offset``.
    ``waiting`` messages are not delivered yet."""

    deliver_ms: int = 0
    offset: int = -1
    waiting: int = 0

    def stored(self, messages: int) -> TimerProgress:
        """Adds messages that wait."""
        return replace(self, waiting=self.waiting + messages)


@dataclass(slots=True)
class BrokerState:
    """Before the first entry it has only the template of automatic topics.

    The ConsumeQueues know where the queues begin and end. ``system`` topics exist by configuration:
    they are in ``topics`` unless the log has others of that name, and never in the bytes.
    """

    topics: dict[str, TopicConfig] = field(
        default_factory=lambda: {AUTO_CREATE_TEMPLATE.name: AUTO_CREATE_TEMPLATE}
    )
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    topics_version: DataVersion = DataVersion()
    groups_version: DataVersion = DataVersion()
    store_timestamp_ms: int = 0
    schedule: dict[int, int] = field(default_factory=dict)
    """The offset up to which messages are delivered, by delay level."""
    timer: TimerProgress = TimerProgress()
    recalled: RecalledMessages = field(default_factory=RecalledMessages)
    requests: RecentRequests = field(default_factory=RecentRequests)
    transactions: dict[int, OpenTransaction] = field(default_factory=dict)
    """The open transactions, in the order of their key, the offset of the half message."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings that an operator has changed, in RocketMQ's names (see
    :mod:`broker.config.dynamic_settings`).
    """
    access: dict[str, bytes] = field(default_factory=dict)
    """Definitions of accounts and of the white list (see :mod:`broker.security.accounts`)."""
    pop: PopQueues = field(default_factory=PopQueues)
    """The deliveries of POP that groups have not acknowledged."""
    system: Mapping[str, TopicConfig] = field(default_factory=dict, compare=False)

    def add_system_topics(self, topics: Mapping[str, TopicConfig]) -> None:
        """Adds topics that exist by configuration."""
        self.system = topics
        self.topics = {**topics, **self.topics}

    @property
    def topic_count(self) -> int:
        """The number of topics without those that exist by configuration."""
        system = sum(self.topics.get(name) is each for name, each in self.system.items())
        return len(self.topics) - system

    @property
    def system_names(self) -> tuple[str, ...]:
        """The names of topics that no user may create, change or delete."""
        return (*dict.fromkeys((*SYSTEM_TOPICS, *self.system)),)

    queue_count: int = field(default=0, init=False, compare=False)
    """The number of queues of all topics except the system's."""
    offset_count: int = field(default=0, init=False, compare=False)
    """The number of offsets of all groups."""

    def __post_init__(self) -> None:
        self.queue_count = sum(topic.queues for topic in self.topics.values())
        self.offset_count = sum(map(len, self.offsets.values()))

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The group's committed offset in the queue, or None."""
        queues = self.offsets.get((group, topic))
        return None if queues is None else queues.get(queue_id)

    @property
    def timed_waiting(self) -> int:
        """The number of timed messages that wait, without recalled ones."""
        return max(self.timer.waiting - len(self.recalled), 0)

    def apply(self, command: Command) -> None:
        """Applies a committed command to the state."""
        match command:
            case CommitOffset(group, topic, queue_id, offset):
                if self.pop.queues and (group, topic, queue_id) in self.pop.queues:
                    self._apply_pop(command)
                else:
                    self._put_offset(group, topic, queue_id, offset)
            case PopReceive() | PopWait() | PopAck() | PopChange() | PopForget():
                self._apply_pop(command)
            case PutTopic():
                replaced = self.topics.get(command.name)
                config = self.topics[command.name] = command.config(replaced)
                self.queue_count += config.queues - self._counted(command.name, replaced)
                self.topics_version = self.topics_version.next(command.timestamp_ms)
            case DeleteTopic():
                self._delete_topic(command)
            case PutTopicRetention(name, retention_ms, now_ms):
                found = self.topics.get(name)
                if found is not None and found is not self.system.get(name):
                    self.topics[name] = replace(found, retention_ms=retention_ms)
                    self.topics_version = self.topics_version.next(now_ms)
            case PutGroup():
                self.groups[command.name] = command.config
                self.groups_version = self.groups_version.next(command.timestamp_ms)
            case DeleteGroup():
                self._delete_group(command)
            case PutSetting(name, value):
                self.settings[name] = value
            case PutAccess(name, definition):
                if definition:
                    self.access[name] = definition
                else:
                    self.access.pop(name, None)
            case Schedule(level, offset):
                self.schedule[level] = offset
            case Timer():
                self._deliver_timed(command)
            case Recall():
                self._recall(command)
            case EndTransaction(offset, position):
                if self._is_open(offset, position):
                    del self.transactions[offset]
            case CheckTransaction(offset, position, now_ms):
                if self._is_open(offset, position):
                    opened = self.transactions[offset]
                    self.transactions[offset] = opened._replace(
                        checks=opened.checks + 1, checked_ms=now_ms
                    )
            case Expire(position):
                self._drop_transactions(position)

    def _drop_transactions(self, position: int) -> None:
        """Only a nearly full disk drops open transactions with the rest. A new look at the first of
        a dictionary would pass over all that were dropped before it."""
        expired = takewhile(lambda opened: opened[1].position < position, self.transactions.items())
        for offset, _ in list(expired):
            del self.transactions[offset]

    def _deliver_timed(self, command: Timer) -> None:
        waiting = max(self.timer.waiting - command.messages, 0)
        self.timer = TimerProgress(command.deliver_ms, command.offset, waiting)
        self.recalled.forget_until((command.deliver_ms, command.offset))

    def _recall(self, command: Recall) -> None:
        key = command.deliver_ms, command.offset
        if key > (self.timer.deliver_ms, self.timer.offset):  # otherwise it was delivered
            self.recalled.add(key)

    def _put_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self.offsets.setdefault((group, topic), {})
        self.offset_count -= len(queues)
        queues[queue_id] = offset
        self.offset_count += len(queues)

    def _apply_pop(self, command: PopCommand | CommitOffset) -> None:
        pop, key = self.pop, command[:3]
        known = pop.queues.get(key)
        before = 0 if known is None else len(known.deliveries)
        queue = changed_by(known, command)
        if isinstance(command, PopReceive | PopChange):
            pop.time_ms = max(pop.time_ms, command.timestamp_ms)
        if queue is None:
            pop.queues.pop(key, None)
            pop.delivery_count -= before
            return
        pop.queues[key] = queue
        pop.delivery_count += len(queue.deliveries) - before
        self._put_offset(*key, queue.committed_offset)

    def _is_open(self, offset: int, position: int) -> bool:
        found = self.transactions.get(offset)
        return found is not None and found.position == position

    def _delete_topic(self, command: DeleteTopic) -> None:
        system = self.system.get(command.name)
        found = self.topics.get(command.name)
        if found is None or found is system:
            return
        del self.topics[command.name]
        self.pop.drop(topic=command.name)
        self.queue_count -= found.queues
        if system is not None:  # the log had one from before the name was the system's
            self.topics[command.name] = system
        self.topics_version = self.topics_version.next(command.timestamp_ms)

    def _counted(self, name: str, topic: TopicConfig | None) -> int:
        """The number of queues that a topic adds to :attr:`queue_count`; a system topic adds
        none."""
        return 0 if topic is None or topic is self.system.get(name) else topic.queues

    def _delete_group(self, command: DeleteGroup) -> None:
        if self.groups.pop(command.name, None) is not None:
            self.groups_version = self.groups_version.next(command.timestamp_ms)
        self.pop.drop(group=command.name)
        if command.remove_offsets:
            for key in [key for key in self.offsets if key[0] == command.name]:
                self.offset_count -= len(self.offsets.pop(key))

    def to_bytes(self) -> bytes:
        """The state as MessagePack, sorted, so that equal states give equal bytes."""
        packed: bytes = msgpack.packb(
            (
                STATE_VERSION,
                [
                    topic_row(topic)
                    for name, topic in sorted(self.topics.items())
                    if topic is not self.system.get(name)
                ],
                [fields_of(group) for _, group in sorted(self.groups.items())],
                [
                    (group, topic, sorted(queues.items()))
                    for (group, topic), queues in sorted(self.offsets.items())
                ],
                fields_of(self.topics_version),
                fields_of(self.groups_version),
                self.store_timestamp_ms,
                self._parts(),
            )
        )
        return packed

    def _parts(self) -> dict[str, object]:
        """The optional fields of the state that are not empty, by name, in order."""
        parts: dict[str, object] = {}
        if self.access:
            parts["access"] = sorted(self.access.items())
        if self.pop:
            parts["pop"] = self.pop.as_rows()
        if self.recalled:
            parts["recalled"] = self.recalled.keys
        if self.requests.data:
            parts["requests"] = bytes(self.requests.data)
        if self.schedule:
            parts["schedule"] = sorted(self.schedule.items())
        if self.settings:
            parts["settings"] = sorted(self.settings.items())
        if self.timer != TimerProgress():
            parts["timer"] = fields_of(self.timer)
        if self.transactions:
            parts["transactions"] = list(self.transactions.items())
        return parts

    @classmethod
    def from_bytes(cls, data: bytes) -> BrokerState:
        """The reverse of :meth:`to_bytes`. Raises :class:`~dledger.errors.InvariantError`."""
        try:
            version, *fields = msgpack.unpackb(data)
            if version == STATE_VERSION_WITHOUT_PARTS:
                fields.append({})
            elif version != STATE_VERSION:
                raise InvariantError(
                    SafetyProperty.SAME_STATE,
                    f"the broker state has version {version}, not {STATE_VERSION}",
                )
            topics, groups, offsets, topics_version, groups_version, stored_ms, parts = fields
            unknown = sorted(parts.keys() - _PARTS)
            if unknown:
                raise InvariantError(
                    SafetyProperty.SAME_STATE,
                    f"the broker state has parts unknown to this version: {unknown}",
                )
            return cls(
                topics={fields[0]: TopicConfig(*fields) for fields in topics},
                groups={fields[0]: GroupConfig(*fields) for fields in groups},
                offsets={(group, topic): dict(queues) for group, topic, queues in offsets},
                topics_version=DataVersion(*topics_version),
                groups_version=DataVersion(*groups_version),
                store_timestamp_ms=stored_ms,
                transactions={
                    offset: OpenTransaction(*fields)
                    for offset, fields in parts.get("transactions", ())
                },
                access=dict(parts.get("access", ())),
                pop=PopQueues.from_rows(parts.get("pop", (0, []))),
                recalled=RecalledMessages(
                    [(at, offset) for at, offset in parts.get("recalled", ())]
                ),
                requests=RecentRequests(bytearray(parts.get("requests", b""))),
                schedule=dict(parts.get("schedule", ())),
                settings=dict(parts.get("settings", ())),
                timer=TimerProgress(*parts.get("timer", ())),
            )
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise InvariantError(
                SafetyProperty.SAME_STATE, f"the broker state cannot be read: {error}"
            ) from error


def changed_by(queue: PopQueue | None, command: PopCommand | CommitOffset) -> PopQueue | None:
    """The deliveries of a queue after a command about it; None if the group has no cursor there."""
    match command:
        case PopReceive():
            queue = queue or PopQueue(command.next_offset)
            offsets = unpack_runs(command.runs)
            queue.receive(command.next_offset, offsets, command.nonce, command.visible_ms)
        case PopWait():
            queue = queue or PopQueue(command.next_offset)
            queue.wait(command.next_offset, unpack_waiting(command.rows))
        case PopForget():
            return None
        case PopAck() if queue is not None:
            queue.acknowledge(unpack_runs(command.runs))
        case PopChange() if queue is not None:
            queue.change(command.offset, command.nonce, command.visible_ms)
        case CommitOffset() if queue is not None:
            queue.commit(command.offset)
    return queue


def topic_row(topic: TopicConfig) -> tuple[object, ...]:
    """The fields of a topic; without its retention, as before there was one, if it has none."""
    fields = fields_of(topic)
    return fields if topic.retention_ms else fields[:-1]


def fields_of(
    record: TopicConfig | GroupConfig | DataVersion | TimerProgress,
) -> tuple[object, ...]:
    return _FIELDS[type(record)](record)


_FIELDS: dict[type, Callable[[object], tuple[object, ...]]] = {
    record: attrgetter(*record.__slots__)
    for record in (TopicConfig, GroupConfig, DataVersion, TimerProgress)
}
