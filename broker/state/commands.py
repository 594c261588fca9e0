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

The leader takes timestamps once: replicas that apply a command never look at a clock. For ``proof``
see :mod:`broker.maintenance.state_proofs`, for ``access`` :mod:`broker.security.accounts`, for
``topic-retention`` and ``trim`` :mod:`broker.maintenance.topic_retention`, for those of POP
:mod:`broker.state.pop_queues`, for ``recall`` :mod:`broker.state.recalled_messages`; ``runs`` are
ascending offsets, as the first i64 and the count u32 of each run. All these are written only if
all members know them (:mod:`broker.state.command_features`), and so is every later command.
A name or a shape that this version does not know is a broken invariant and not a bad request.
Everybody must apply what a majority has committed, or the node has to stop.
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
        """The topic then; ``known`` is the topic before. Its retention stays."""
        return TopicConfig(*self[:-1], 0 if known is None else known.retention_ms)


class DeleteTopic(NamedTuple):
    """Removes a topic and its messages. Created again, its queues go on where they ended."""

    name: str
    timestamp_ms: int


class PutTopicRetention(NamedTuple):
    """A topic that exists keeps its messages for so long; 0: as long as the log does."""

    name: str
    retention_ms: int
    timestamp_ms: int


class Trim(NamedTuple):
    """The queue begins at ``offset``: its topic does not keep what is before."""

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
    """Removes a subscription group, and with ``remove_offsets`` what it has consumed."""

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
    """The messages of a delay level below ``offset`` are delivered, with this entry or before."""

    level: int
    offset: int


class Timer(NamedTuple):
    """Timed messages up to this deliver time and offset are delivered, the last ``messages`` of
    them in this entry."""

    deliver_ms: int
    offset: int
    messages: int


class Recall(NamedTuple):
    """The timed message of this deliver time and offset is taken back: it is passed over."""

    deliver_ms: int
    offset: int


class EndTransaction(NamedTuple):
    """The transaction of the half message there is over. Its message is in the same entry if it was
    committed; without one it was rolled back."""

    offset: int
    position: int


class CheckTransaction(NamedTuple):
    """The producer is asked once more how the transaction of that half message has ended."""

    offset: int
    position: int
    timestamp_ms: int


class PutSetting(NamedTuple):
    """An operator has set this for all brokers of the group (see
    :mod:`broker.config.dynamic_settings`).
    """

    name: str
    value: str


class PutAccess(NamedTuple):
    """An account, or the global white list, is made, changed or, with an empty definition, removed
    (see :mod:`broker.security.accounts`). The definition counts where it is looked up."""

    name: str
    definition: bytes


class PopReceive(NamedTuple):
    """A member of the group has received these messages: new ones before ``next_offset``, or once
    more. Nobody else gets them before ``visible_ms``."""

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
    """The group is done with these messages. One that it gave up is, as a copy for the dead
    letters, in the same entry."""

    group: str
    topic: str
    queue_id: int
    runs: bytes


class PopChange(NamedTuple):
    """The message stays with who received it until ``visible_ms``, under a new handle."""

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
    """The entry holds requests of producers; a retry of one must be known (see
    :mod:`broker.state.deduplication_window`)."""

    keys: bytes


class Proof(NamedTuple):
    """The voters' digests of their states after the entry ``point``, -1 for none; every member
    takes the digests of its own after the entry that holds this (see
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
    """The bytes of ``commands``; none at all for no command."""
    arrays = [(_NAMES[type(command)], *command) for command in commands]
    packed: bytes = msgpack.packb(arrays) if arrays else b""
    return packed


def decode_commands(data: Bytes) -> Sequence[Command]:
    """The commands that ``data`` holds. Raises :class:`~dledger.errors.InvariantError`."""
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
            SafetyProperty.SAME_STATE, f"committed commands are no array: {arrays!r}"
        )
    return [_decode(array) for array in arrays]


def _decode(array: object) -> Command:
    if type(array) is not list or not array or type(array[0]) is not str:
        raise InvariantError(
            SafetyProperty.SAME_STATE, f"a committed command is no array with a name: {array!r}"
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
