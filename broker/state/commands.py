"""The replicated commands: all changes of a broker's state except messages.

They travel in the same log entries as the messages, as a MessagePack array of arrays; each inner
array is a name followed by the fields of the class below, in order::

    ["topic", name, read queues, write queues, perm, sys flag, order, timestamp ms]
    ["delete-topic", name, timestamp ms]
    ["topic-retention", name, ms, timestamp ms]
    ["trim", topic, queue id, offset]
    ["group", name, consume, from min, broadcast, retry queues, retry times, broker id,
              broker id when slow, notify, timestamp ms]
    ["delete-group", name, remove offsets, timestamp ms]
    ["offset", group, topic, queue id, offset]
    ["expire", position]
    ["schedule", delay level, offset]
    ["timer", deliver time ms, offset, messages]
    ["recall", deliver time ms, offset]
    ["end-transaction", offset, position]
    ["check-transaction", offset, position, timestamp ms]
    ["setting", name, value]
    ["access", name, definition as binary MessagePack, empty to remove it]
    ["pop-receive", group, topic, queue id, next offset, runs, nonce, visible ms, timestamp ms]
    ["pop-wait", group, topic, queue id, next offset, [offset i64, hash u32] of each message]
    ["pop-ack", group, topic, queue id, runs]
    ["pop-change", group, topic, queue id, offset, nonce, visible ms, timestamp ms]
    ["pop-forget", group, topic, queue id]
    ["requests", key hash of the first message of each request in this entry, each as u32]
    ["proof", index of an entry or -1, [[member, its state digests after that entry], ...] as
              binary MessagePack]

The leader takes each timestamp: replicas never look at a clock when they apply a command. For
``proof`` see :mod:`broker.maintenance.state_proofs`, for ``access``
:mod:`broker.security.accounts`, for ``topic-retention`` and ``trim``
:mod:`broker.maintenance.topic_retention`, for POP :mod:`broker.state.pop_queues`, for ``recall``
:mod:`broker.state.recalled_messages`. ``runs`` are ascending offsets, as the first i64 and the
count u32 of each run. The commands named in this paragraph, and every later command, enter the log
only if all members know them (:mod:`broker.state.command_features`). A name or a shape that this
version does not know is a broken invariant, not a bad request: a replica that cannot apply a
committed command must stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, get_type_hints

import msgpack

from broker.topics_and_groups import GroupConfig, TopicConfig
from dledger.errors import InvariantError, SafetyProperty
from store.io.filesystem import Bytes
from store.state.state_digests import PROOF


class PutTopic(NamedTuple):
    """Creates a topic or replaces its settings."""

    name: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int
    order: bool
    timestamp_ms: int

    @classmethod
    def of(cls, topic: TopicConfig, timestamp_ms: int) -> PutTopic:
        return cls(
            topic.name,
            topic.read_queues,
            topic.write_queues,
            topic.perm,
            topic.sys_flag,
            topic.order,
            timestamp_ms,
        )

    def config(self, known: TopicConfig | None) -> TopicConfig:
        """The topic after the command; ``known`` is the topic before. Its retention stays."""
        return TopicConfig(*self[:-1], 0 if known is None else known.retention_ms)


class DeleteTopic(NamedTuple):
    """Removes a topic and its messages. If it is created again, its queues continue at the old
    offsets."""

    name: str
    timestamp_ms: int


class PutTopicRetention(NamedTuple):
    """Sets how long a topic keeps its messages, in ms; 0: as long as the log."""

    name: str
    retention_ms: int
    timestamp_ms: int


class Trim(NamedTuple):
    """Moves the minimum offset of a queue to ``offset``: its topic does not keep older messages."""

    topic: str
    queue_id: int
    offset: int


class PutGroup(NamedTuple):
    """Creates a subscription group or replaces its settings."""

    name: str
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queues: int
    retry_max_times: int
    broker_id: int
    which_broker_when_slow: int
    notify_ids_changed: bool
    timestamp_ms: int

    @classmethod
    def of(cls, group: GroupConfig, timestamp_ms: int) -> PutGroup:
        return cls(
            group.name,
            group.consume_enable,
            group.consume_from_min_enable,
            group.consume_broadcast_enable,
            group.retry_queues,
            group.retry_max_times,
            group.broker_id,
            group.which_broker_when_slow,
            group.notify_ids_changed,
            timestamp_ms,
        )

    @property
    def config(self) -> GroupConfig:
        return GroupConfig(*self[:-1])


class DeleteGroup(NamedTuple):
    """Removes a subscription group, and with ``remove_offsets`` its offsets."""

    name: str
    remove_offsets: bool
    timestamp_ms: int


class CommitOffset(NamedTuple):
    """A group has consumed a queue up to, not including, ``offset``."""

    group: str
    topic: str
    queue_id: int
    offset: int


class Expire(NamedTuple):
    """The commit log below ``position`` expires."""

    position: int


class Schedule(NamedTuple):
    """The messages of a delay level below ``offset`` are delivered, in this entry or before."""

    level: int
    offset: int


class Timer(NamedTuple):
    """Timed messages up to this deliver time and offset are delivered, the last ``messages`` of
    them in this entry."""

    deliver_ms: int
    offset: int
    messages: int


class Recall(NamedTuple):
    """The timed message of this deliver time and offset is recalled: it is not delivered."""

    deliver_ms: int
    offset: int


class EndTransaction(NamedTuple):
    """The transaction of that half message has ended. If it was committed, the message is in the
    same entry; otherwise it was rolled back."""

    offset: int
    position: int


class CheckTransaction(NamedTuple):
    """A check-back asks the producer once more about the transaction of that half message."""

    offset: int
    position: int
    timestamp_ms: int


class PutSetting(NamedTuple):
    """An operator has changed a setting for all brokers of the group (see
    :mod:`broker.config.dynamic_settings`).
    """

    name: str
    value: str


class PutAccess(NamedTuple):
    """Creates or changes an account or the global white list; an empty definition removes it (see
    :mod:`broker.security.accounts`). The definition is parsed at its look-up, not here."""

    name: str
    definition: bytes


class PopReceive(NamedTuple):
    """A member of the group has received these messages: new ones before ``next_offset``, or
    earlier ones again. Nobody else gets them before ``visible_ms``."""

    group: str
    topic: str
    queue_id: int
    next_offset: int
    runs: bytes
    nonce: int
    visible_ms: int
    timestamp_ms: int


class PopWait(NamedTuple):
    """These messages before ``next_offset`` wait until an earlier one of their message group is
    acknowledged."""

    group: str
    topic: str
    queue_id: int
    next_offset: int
    rows: bytes


class PopAck(NamedTuple):
    """The group has acknowledged these messages, or given them up. Then their dead letters are in
    the same entry."""

    group: str
    topic: str
    queue_id: int
    runs: bytes


class PopChange(NamedTuple):
    """The invisible time of a message now ends at ``visible_ms``, under a new receipt handle."""

    group: str
    topic: str
    queue_id: int
    offset: int
    nonce: int
    visible_ms: int
    timestamp_ms: int


class PopForget(NamedTuple):
    """An operator moves the group in the queue: its cursor and deliveries there are forgotten."""

    group: str
    topic: str
    queue_id: int


PopCommand: TypeAlias = PopReceive | PopWait | PopAck | PopChange | PopForget


class StoreRequests(NamedTuple):
    """The requests of producers in this entry, for the recognition of retries (see
    :mod:`broker.state.deduplication_window`)."""

    keys: bytes


class Proof(NamedTuple):
    """The voters' digests of their states after the entry ``point``, -1 for none. Every member
    takes its own digests after the entry of this command (see
    :mod:`broker.maintenance.state_proofs`).
    """

    point: int
    reports: bytes


Command: TypeAlias = (
    PutTopic
    | DeleteTopic
    | PutTopicRetention
    | Trim
    | PutGroup
    | DeleteGroup
    | CommitOffset
    | Expire
    | Schedule
    | Timer
    | Recall
    | EndTransaction
    | CheckTransaction
    | PutSetting
    | PutAccess
    | PopCommand
    | StoreRequests
    | Proof
)

_CLASSES: dict[str, type[Command]] = {
    "topic": PutTopic,
    "delete-topic": DeleteTopic,
    "topic-retention": PutTopicRetention,
    "trim": Trim,
    "group": PutGroup,
    "delete-group": DeleteGroup,
    "offset": CommitOffset,
    "expire": Expire,
    "schedule": Schedule,
    "timer": Timer,
    "recall": Recall,
    "end-transaction": EndTransaction,
    "check-transaction": CheckTransaction,
    "setting": PutSetting,
    "access": PutAccess,
    "pop-receive": PopReceive,
    "pop-wait": PopWait,
    "pop-ack": PopAck,
    "pop-change": PopChange,
    "pop-forget": PopForget,
    "requests": StoreRequests,
    PROOF: Proof,
}
_NAMES: dict[type[Command], str] = {made: name for name, made in _CLASSES.items()}
_TYPES: dict[str, tuple[type, ...]] = {
    name: tuple(get_type_hints(made).values()) for name, made in _CLASSES.items()
}


def encode_commands(commands: Iterable[Command]) -> bytes:
    """The bytes of ``commands``; empty without a command."""
    arrays = [(_NAMES[type(command)], *command) for command in commands]
    packed: bytes = msgpack.packb(arrays) if arrays else b""
    return packed


def decode_commands(data: Bytes) -> Sequence[Command]:
    """The commands in ``data``. Raises :class:`~dledger.errors.InvariantError`."""
    if not data:
        return ()
    try:
        arrays = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"committed commands are not MessagePack: {error}"
        ) from error
    if type(arrays) is not list:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"committed commands are not an array: {arrays!r}"
        )
    return [_decode(array) for array in arrays]


def _decode(array: object) -> Command:
    if type(array) is not list or not array or type(array[0]) is not str:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"a committed command is not an array with a name: {array!r}"
        )
    name, *fields = array
    made = _CLASSES.get(name)
    if made is None:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"a committed command is unknown to this version: {array!r}"
        )
    if tuple(map(type, fields)) != _TYPES[name]:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"a committed command has the wrong fields: {array!r}"
        )
    return made(*fields)
