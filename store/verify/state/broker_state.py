"""The broker's state in a checkpoint, replayed from the commands and messages of the log.

This follows docs/format.md and shares no code with the broker, so it finds mistakes there. A range
gives :class:`BrokerEffects`, without commands that later ones override. :class:`BrokerTables`
applies the effects of all ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from struct import Struct
from typing import Any

import msgpack

from store.errors import CorruptRecordError
from store.field_checks import array
from store.message.batch import QUEUE_ROW, Batch
from store.message.properties import find_property
from store.message.record import decode_record
from store.message.scheduled_topics import TIMER_TOPIC
from store.state.state_digests import PROOF
from store.verify.state.pop_state import POP_SIZES, PopTables

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
COUNTED_TOPICS = (HALF_TOPIC, TIMER_TOPIC)
"""Topics whose messages change the state."""
TEMPLATE = ["TBW102", 8, 8, 7, 0, False]
"""The template of automatic topics. Every state begins with it."""
PRODUCER_GROUP = b"PGROUP"
IMMUNITY = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
IMMUNITY_DIGITS_MAX = 7
REQUESTS_BYTES_MAX = 512 << 10
STATE_VERSION = 2
FIELDS = (
    "version",
    "topics",
    "groups",
    "consumer offsets",
    "version of the topics",
    "version of the groups",
    "store time of the newest message",
    "parts",
)
TRIM = "trim"
_REQUESTS = Struct(">qI")
_TOPIC_FIELDS = 6
"""Fields of a topic without a retention. The retention is one more field."""
_OVERRIDING = {"access": 2, "schedule": 2, "setting": 2}
"""Commands that override earlier ones, if so many first fields are equal."""
_SIZES = {
    "topic": 8,
    "delete-topic": 3,
    "topic-retention": 4,
    "group": 11,
    "delete-group": 4,
    "offset": 5,
    "expire": 2,
    "schedule": 3,
    "timer": 4,
    "recall": 3,
    "end-transaction": 3,
    "check-transaction": 4,
    "setting": 3,
    "access": 3,
    **POP_SIZES,
}
"""By name of the command, the length of its array."""


@dataclass(slots=True)
class BrokerEffects:
    """The effects of the entries of a range on the state, in order. Can be pickled.

    ``steps``: commands as in the log, ``["opened", offset, transaction]`` for a half message, and
    ``["stored", count]`` for timed messages. ``requests``: those of the newest entries, encoded as
    in a state. ``forgotten``: requests of earlier ranges no longer count.
    """

    steps: dict[object, list[Any]] = field(default_factory=dict)
    requests: bytearray = field(default_factory=bytearray)
    forgotten: bool = False
    unknown: str = ""
    """The first unknown command, if any. The effects are unknown then."""
    _count: int = 0
    _pop_counts: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    """The number of POP commands, by group, topic and queue."""

    def take(self, batch: Batch | None, commands: Sequence[Any], position: int) -> None:
        """Takes an entry at ``position``. Its messages come before its commands.

        ``batch`` may be ``None`` if it has no message of :data:`COUNTED_TOPICS`.
        """
        if batch is not None:
            self._take_messages(batch)
        for command in commands:
            match command:
                case ["requests", bytes(keys)]:
                    self._add_requests(position, keys)
                case [str(name), _point, _reports] if name == PROOF:
                    pass  # a proof changes nothing
                case [str(name), _topic, _queue_id, _offset] if name == TRIM:
                    pass  # a trim changes nothing in these tables
                case [str(name), *_] if _SIZES.get(name) == len(command):
                    self._add(command)
                case _:
                    self.unknown = self.unknown or f"{command!r:.80}"

    def _take_messages(self, batch: Batch) -> None:
        for run in batch.runs:
            if run.topic == TIMER_TOPIC:
                self._add(["stored", run.row_count])
            elif run.topic == HALF_TOPIC:
                self._open(batch, run.first_row, run.row_count, run.first_offset)

    def _add(self, step: list[Any]) -> None:
        keyed = _OVERRIDING.get(step[0])
        try:
            if step[0] == "offset":
                self._add_offset(step)
            elif keyed is None:
                self._count += 1
                self.steps[self._count] = step
                if step[0] in POP_SIZES:
                    self._pop_counts[tuple(step[1:4])] += 1
            else:
                key = tuple(step[:keyed])
                self.steps.pop(key, None)
                self.steps[key] = step
        except TypeError:
            self.unknown = self.unknown or f"{step!r:.80}"

    def _add_offset(self, step: list[Any]) -> None:
        """Adds an offset command. The last one counts, or the greatest if a group has a POP cursor.

        The greatest is the last field of the step. Offsets with POP commands between them are not
        joined.
        """
        *of, offset = step
        key = (*of, self._pop_counts[tuple(of[1:])])
        earlier = self.steps.pop(key, step)
        self.steps[key] = [*step, max(offset, earlier[-1])]

    def _open(self, batch: Batch, first_row: int, count: int, first_offset: int) -> None:
        size = QUEUE_ROW.size
        start, _size, _code = QUEUE_ROW.unpack_from(batch.rows)
        rows = batch.rows[first_row * size : (first_row + count) * size]
        for offset, (position, _size, _code) in enumerate(
            QUEUE_ROW.iter_unpack(rows), first_offset
        ):
            try:
                record = decode_record(batch.records, position - start)
            except (CorruptRecordError, ValueError) as error:
                self.unknown = self.unknown or f"a half message: {error}"
                return
            seconds = find_property(record.properties, IMMUNITY) or b""
            immune = seconds.isdigit() and len(seconds) <= IMMUNITY_DIGITS_MAX
            group = (find_property(record.properties, PRODUCER_GROUP) or b"").decode(
                errors="replace"
            )
            immunity_ms = 1000 * int(seconds) if immune else -1
            opened = [record.position, group, record.store_timestamp, immunity_ms, 0, 0]
            self._add(["opened", offset, opened])

    def _add_requests(self, position: int, keys: bytes) -> None:
        self.requests += _REQUESTS.pack(position, len(keys) // 4) + keys
        self.forgotten |= _forget_oldest(self.requests)


class BrokerTables:
    """The state, as the arrays of its encoding. A new one is the state before entry 0."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Any]] = {TEMPLATE[0]: list(TEMPLATE)}  # type: ignore[dict-item]  # its first item is the name
        self.groups: dict[str, list[Any]] = {}
        self.offsets: dict[tuple[str, str], dict[int, int]] = {}
        self.versions = {"topics": [0, 0], "groups": [0, 0]}
        self.stored_ms = 0
        self.schedule: dict[int, int] = {}
        self.settings: dict[str, str] = {}
        self.access: dict[str, bytes] = {}
        self.timer = [0, -1, 0]
        self.recalled: list[list[int]] = []
        self.transactions: dict[int, list[Any]] = {}
        self.requests = bytearray()
        self.pop = PopTables()

    @classmethod
    def decode(cls, data: bytes) -> BrokerTables:
        """The tables of a state. Raises :class:`ValueError`."""
        _version, topics, groups, offsets, *versions, stored_ms, parts = decode_fields(data)
        tables = cls()
        try:
            tables.topics = {each[0]: each for each in topics}
            tables.groups = {each[0]: each for each in groups}
            tables.offsets = {(group, topic): dict(each) for group, topic, each in offsets}
            tables.versions = dict(zip(tables.versions, versions, strict=True))
            tables.stored_ms = stored_ms
            tables.schedule = dict(parts.get("schedule", ()))
            tables.settings = dict(parts.get("settings", ()))
            tables.access = dict(parts.get("access", ()))
            tables.timer = parts.get("timer", tables.timer)
            tables.recalled = [list(each) for each in parts.get("recalled", ())]
            tables.transactions = dict(parts.get("transactions", ()))
            tables.requests = bytearray(parts.get("requests", b""))
            tables.pop = PopTables.decode(parts.get("pop", [0, []]))
        except (TypeError, IndexError, AttributeError) as error:
            raise ValueError(str(error)) from error
        return tables

    def apply(self, effects: BrokerEffects, last_ms: int | None) -> None:
        """Applies a range. ``last_ms`` is the store time of its last message.

        Raises :class:`ValueError` for a malformed or unknown command.
        """
        if effects.unknown:
            raise ValueError(effects.unknown)
        for step in effects.steps.values():
            try:
                self._apply(step)
            except (TypeError, IndexError) as error:
                raise ValueError(f"{step!r:.80}: {error}") from error
        if effects.forgotten:
            self.requests.clear()
        self.requests += effects.requests
        _forget_oldest(self.requests)
        if last_ms is not None:
            self.stored_ms = last_ms

    def fields(self) -> list[Any]:
        """The fields that :func:`decode_fields` should give."""
        parts: dict[str, Any] = {
            "access": _pairs(self.access),
            "pop": self.pop.rows(),
            "recalled": self.recalled,
            "requests": bytes(self.requests),
            "schedule": _pairs(self.schedule),
            "settings": _pairs(self.settings),
            "timer": [] if self.timer == [0, -1, 0] else self.timer,
            "transactions": [[offset, each] for offset, each in self.transactions.items()],
        }
        return [
            STATE_VERSION,
            [topic for _, topic in sorted(self.topics.items())],
            [group for _, group in sorted(self.groups.items())],
            [[*key, _pairs(queues)] for key, queues in sorted(self.offsets.items())],
            *self.versions.values(),
            self.stored_ms,
            {name: part for name, part in parts.items() if part},
        ]

    def _apply(self, step: list[Any]) -> None:
        match step:
            case [str(name), *fields] if name == "offset" or name in POP_SIZES:
                self._move(name, fields)
            case ["topic" | "topic-retention" | "delete-topic" as kind, name, *fields, time_ms]:
                self._change_topic(kind, name, fields, time_ms)
            case ["group", name, *config, time_ms]:
                self.groups[name] = [name, *config]
                self._change("groups", time_ms)
            case ["delete-group", name, remove_offsets, time_ms]:
                if self.groups.pop(name, None) is not None:
                    self._change("groups", time_ms)
                self.pop.drop(group=name)
                if remove_offsets:
                    self.offsets = {key: at for key, at in self.offsets.items() if key[0] != name}
            case ["setting", name, value]:
                self.settings[name] = value
            case ["access", name, definition]:
                self.access.pop(name, None)
                if definition:
                    self.access[name] = definition
            case ["schedule", level, offset]:
                self.schedule[level] = offset
            case ["stored", count]:
                self.timer = [*self.timer[:2], self.timer[2] + count]
            case ["timer", deliver_ms, offset, messages]:
                self.timer = [deliver_ms, offset, max(self.timer[2] - messages, 0)]
                passed = bisect_right(self.recalled, self.timer[:2])
                del self.recalled[:passed]
            case ["recall", *key]:
                at = bisect_right(self.recalled, key)
                if key > self.timer[:2] and self.recalled[at - 1 : at] != [key]:
                    self.recalled.insert(at, key)
            case ["opened", offset, transaction]:
                self.transactions[offset] = list(transaction)
            case ["end-transaction", offset, position]:
                if self.transactions.get(offset, [None])[0] == position:
                    del self.transactions[offset]
            case ["check-transaction", offset, position, now_ms]:
                found = self.transactions.get(offset, [None])
                if found[0] == position:
                    self.transactions[offset] = [*found[:4], found[4] + 1, now_ms]
            case ["expire", position]:
                opened = self.transactions.items()
                for offset, _ in list(takewhile(lambda each: each[1][0] < position, opened)):
                    del self.transactions[offset]

    def _change_topic(self, kind: str, name: str, fields: list[Any], time_ms: int) -> None:
        known = self.topics.get(name)
        if kind == "topic":
            self.topics[name] = [name, *fields, *(known or [])[_TOPIC_FIELDS:]]
        elif known is None:
            return
        elif kind == "topic-retention":
            retention = [each for each in fields if each]
            self.topics[name] = [*known[:_TOPIC_FIELDS], *retention]
        else:
            del self.topics[name]
            self.pop.drop(topic=name)
        self._change("topics", time_ms)

    def _move(self, name: str, fields: list[Any]) -> None:
        """Applies a command about a group's offset in a queue."""
        group, topic, queue_id, *rest = fields
        key = group, topic, queue_id
        if name == "offset":
            offset, greatest = rest
            committed = self.pop.commit(key, greatest)
            if committed is None:
                committed = offset
        else:
            committed = self.pop.apply(name, key, rest)
        if committed is not None:
            self.offsets.setdefault((group, topic), {})[queue_id] = committed

    def _change(self, table: str, time_ms: int) -> None:
        self.versions[table] = [self.versions[table][0] + 1, time_ms]


def _forget_oldest(requests: bytearray) -> bool:
    """Removes the oldest requests above the limit. Returns whether there were any."""
    place = 0
    while len(requests) - place > REQUESTS_BYTES_MAX:
        place += _REQUESTS.size + 4 * _REQUESTS.unpack_from(requests, place)[1]
    del requests[:place]
    return place > 0


def _pairs(table: dict[Any, Any]) -> list[list[Any]]:
    return [list(pair) for pair in sorted(table.items())]


def decode_fields(data: bytes) -> list[Any]:
    """The eight fields of a state, unchecked. Raises :class:`ValueError`."""
    try:
        fields = list(array(msgpack.unpackb(data)))
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"no MessagePack: {error}") from error
    if fields and fields[0] == 1:  # version 1 has no parts
        fields = [STATE_VERSION, *fields[1:], {}]
    if len(fields) != len(FIELDS) or fields[0] != STATE_VERSION:
        raise ValueError(f"no state of version {STATE_VERSION}: {fields!r:.80}")
    return fields


def first_difference(expected: Sequence[Any], found: Sequence[Any]) -> tuple[str, str, str]:
    """The first field that differs, and its value in each state."""
    for name, right, wrong in zip(FIELDS, expected, found, strict=True):
        if not same(right, wrong):
            return _within(name, right, wrong)
    raise ValueError("the states are equal")


def same(one: object, other: object) -> bool:
    """Whether both are equal in MessagePack, where ``True``, 1 and 1.0 differ."""
    return bool(msgpack.packb(one) == msgpack.packb(other))


def _within(name: str, right: object, wrong: object) -> tuple[str, str, str]:
    """The first part or row of a field that differs."""
    if isinstance(right, dict) and isinstance(wrong, dict):
        for part in sorted({*right, *wrong}, key=str):
            if not same(right.get(part), wrong.get(part)):
                return _within(f"part {part}", right.get(part), wrong.get(part))
        return name, f"parts {list(right)}", f"parts {list(wrong)}"
    if isinstance(right, list) and isinstance(wrong, list):
        for place in range(max(len(right), len(wrong))):
            here, there = right[place : place + 1], wrong[place : place + 1]
            if not same(here, there):
                return name, _text(here), _text(there)
    return name, _text([right]), _text([wrong])


def _text(values: Sequence[object]) -> str:
    return f"{values[0]!r:.300}" if values and values[0] is not None else "nothing"
