"""State and commands as docs/format.md has them: a reader that knows that page alone reads them.

The tables are taken as they stand there, so page and code cannot part.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from itertools import chain
from typing import Any, get_type_hints

import msgpack

from broker.security.accounts import Account, unpack_account
from broker.security.key_sealing import KeySealer
from broker.security.permissions import Permission
from broker.state import commands as code
from broker.state.broker_state import BrokerState, DataVersion, TimerProgress
from broker.state.deduplication_window import RecentRequests, pack_keys
from broker.state.open_transactions import OpenTransaction
from broker.state.pop_queues import PopDelivery, PopQueue, PopQueues
from broker.state.recalled_messages import RecalledMessages
from broker.topics_and_groups import GroupConfig, TopicConfig
from store.message.record import derive, key_hash, key_prefix
from store.message.scheduled_topics import DELAYS_MS
from tests.store.test_format_vectors import DOCUMENT, VECTORS

TEXT = DOCUMENT.read_text(encoding="utf-8")
KINDS = {"int": int, "text": str, "bool": bool, "binary": bytes, "map": dict}
Shape = list[tuple[str, str]]


def table(heading: str) -> list[list[str]]:
    """The rows of the first table whose first column has that heading."""
    lines = iter(TEXT.splitlines())
    assert any(line.startswith(f"| {heading} |") for line in lines), f"no table of {heading}"
    next(lines)
    rows: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def fields(cell: str) -> Shape:
    return re.findall(r"`(\w+)` ((?:list of )?\w+)", cell)


ARRAYS = {name: fields(cell) for name, cell in table("Array")}
COMMANDS = {name.strip("`"): fields(cell) for name, cell, _ in table("Command")}
PARTS = {name.strip("`"): shape for name, shape, _ in table("Part")}


def read(value: Any, shape: str) -> Any:
    """A value as the page says it: arrays become mappings of their fields."""
    if shape.startswith("list of "):
        assert type(value) is list
        return [read(each, shape.removeprefix("list of ")) for each in value]
    if shape in ARRAYS:
        return read_array(value, ARRAYS[shape])
    assert type(value) is KINDS[shape], f"{value!r} is no {shape}"
    return value


def read_array(value: Any, shape: Shape) -> dict[str, Any]:
    assert type(value) is list
    if shape == ARRAYS["topic"] and len(value) == len(shape) - 1:
        value = [*value, 0]  # a topic without a retention
    assert len(value) == len(shape), f"{value!r} has not the fields {shape}"
    return {name: read(each, kind) for (name, kind), each in zip(shape, value, strict=True)}


def read_state(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = read(msgpack.unpackb(data), "state")
    state["parts"] = {name: read(part, PARTS[name]) for name, part in state["parts"].items()}
    return state


def read_commands(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    return [(name, read_array(rest, COMMANDS[name])) for name, *rest in msgpack.unpackb(data)]


TOPIC = TopicConfig("orders", 3, 5, 6, 7, order=True, retention_ms=3_600_000)
GROUP = GroupConfig("g", True, False, True, 2, 17, 1, 3, False)
EVERY: list[code.Command] = [
    code.PutTopic.of(TOPIC, 11),
    code.DeleteTopic("orders", 12),
    code.PutTopicRetention("orders", 3_600_000, 13),
    code.Trim("orders", 2, 9),
    code.PutGroup.of(GROUP, 13),
    code.DeleteGroup("g", remove_offsets=True, timestamp_ms=14),
    code.CommitOffset("g", "orders", 2, 9),
    code.Expire(4096),
    code.Schedule(3, 5),
    code.Timer(1_700_000_000_000, 6, 2),
    code.Recall(1_700_000_000_001, 7),
    code.EndTransaction(7, 8192),
    code.CheckTransaction(8, 8193, 15),
    code.PutSetting("flushDiskType", "SYNC_FLUSH"),
    code.PutAccess("reader1", b"\x90"),
    code.PopReceive("g", "orders", 2, 9, bytes(12), 77, 31, 30),
    code.PopWait("g", "orders", 2, 9, bytes(12)),
    code.PopAck("g", "orders", 2, bytes(12)),
    code.PopChange("g", "orders", 2, 5, 78, 32, 31),
    code.PopForget("g", "orders", 2),
    code.Proof(41, b"\x90"),
    code.StoreRequests(pack_keys([1, 1 << 31])),
]


def test_all_commands_are_on_the_page_with_their_fields_and_types() -> None:
    names = {int: "int", str: "text", bool: "bool", bytes: "binary"}
    known = {
        name: [(field, names[kind]) for field, kind in get_type_hints(made).items()]
        for name, made in code._CLASSES.items()
    }
    assert known == COMMANDS


def test_every_command_is_read_by_the_page() -> None:
    found = read_commands(code.encode_commands(EVERY))
    assert [values for _, values in found] == [command._asdict() for command in EVERY]
    assert [name for name, _ in found] == list(COMMANDS)


def full_state() -> BrokerState:
    state = BrokerState(
        topics={TOPIC.name: TOPIC, "a": TopicConfig("a")},
        groups={GROUP.name: GROUP},
        offsets={("g", "orders"): {2: 9, 1: 8}, ("f", "a"): {0: 1}},
        topics_version=DataVersion(4, 16),
        groups_version=DataVersion(5, 17),
        store_timestamp_ms=18,
        schedule={3: 5, 1: 4},
        timer=TimerProgress(19, 6, 2),
        recalled=RecalledMessages([(19, 7), (20, 1)]),
        requests=RecentRequests(),
        transactions={7: OpenTransaction(8192, "p", 20, 21, 22, 23), 9: OpenTransaction(1, "q", 2)},
        settings={"b": "2", "a": "1"},
        access={"writer1": b"w", "reader1": b"r"},
        pop=PopQueues(
            {
                ("g", "orders", 2): PopQueue(9, OrderedDict({3: PopDelivery(40, 2, 77, 5)})),
                ("f", "a", 0): PopQueue(1),
            },
            30,
        ),
    )
    state.requests.add(4096, pack_keys([1, 2]))
    return state


def test_a_state_with_all_there_is_is_read_by_the_page() -> None:
    state = full_state()
    found = read_state(state.to_bytes())
    assert found["version"] == 2
    assert [TopicConfig(**each) for each in found["topics"]] == [TopicConfig("a"), TOPIC]
    assert [GroupConfig(**each) for each in found["groups"]] == [GROUP]
    offsets = {
        (each["group"], each["topic"]): {one["queue_id"]: one["offset"] for one in each["queues"]}
        for each in found["offsets"]
    }
    assert offsets == state.offsets
    assert [each["group"] for each in found["offsets"]] == ["f", "g"]
    assert DataVersion(**found["topics_version"]) == state.topics_version
    assert DataVersion(**found["groups_version"]) == state.groups_version
    assert found["store_timestamp_ms"] == 18
    parts = found["parts"]
    assert list(parts) == list(PARTS)
    assert parts["requests"] == bytes(state.requests.data)
    assert [tuple(each.values()) for each in parts["schedule"]] == [(1, 4), (3, 5)]
    assert [tuple(each.values()) for each in parts["settings"]] == [("a", "1"), ("b", "2")]
    assert [tuple(each.values()) for each in parts["access"]] == [
        ("reader1", b"r"),
        ("writer1", b"w"),
    ]
    assert TimerProgress(**parts["timer"]) == state.timer
    assert [tuple(each.values()) for each in parts["recalled"]] == [(19, 7), (20, 1)]
    assert parts["pop"]["time_ms"] == 30
    assert [tuple(each.values())[:4] for each in parts["pop"]["cursors"]] == [
        ("f", "a", 0, 1),
        ("g", "orders", 2, 9),
    ]
    assert [tuple(each.values()) for each in parts["pop"]["cursors"][1]["deliveries"]] == [
        (3, 40, 2, 77, 5)
    ]
    opened = {
        each["half_offset"]: OpenTransaction(**each["opened"]) for each in parts["transactions"]
    }
    assert opened == state.transactions
    assert BrokerState.from_bytes(state.to_bytes()) == state


def test_the_fields_on_the_page_have_the_names_of_the_code() -> None:
    for name, record in (
        ("topic", TopicConfig),
        ("group", GroupConfig),
        ("version", DataVersion),
        ("timer", TimerProgress),
        ("open", OpenTransaction),
    ):
        hints = get_type_hints(record)
        kinds = [(field, KINDS[kind]) for field, kind in ARRAYS[name]]
        assert [(field, hints[field]) for field in hints] == kinds, name
    used = {kind.removeprefix("list of ") for shape in ARRAYS.values() for _, kind in shape}
    used |= {shape.removeprefix("list of ") for shape in PARTS.values()}
    assert used <= ARRAYS.keys() | KINDS.keys()
    assert used | {"state"} >= ARRAYS.keys(), "an array is nowhere"


def test_the_state_on_the_page_is_what_the_code_writes() -> None:
    topic = TopicConfig("TopicTest")
    state = BrokerState(
        topics={topic.name: topic},
        groups={"g": GroupConfig("g")},
        offsets={("g", "TopicTest"): {3: 8}},
        topics_version=DataVersion(2, 1_700_000_000_000),
        groups_version=DataVersion(1, 1_700_000_000_000),
        store_timestamp_ms=1_700_000_000_001,
        schedule={3: 2},
    )
    assert state.to_bytes() == VECTORS["broker-state"]
    assert BrokerState.from_bytes(VECTORS["broker-state"]) == state
    assert read_state(VECTORS["broker-state"])["parts"] == {"schedule": [{"level": 3, "offset": 2}]}


def test_the_commands_on_the_page_are_what_the_code_writes() -> None:
    made: list[code.Command] = [code.CommitOffset("g", "TopicTest", 3, 8), code.Expire(266)]
    assert code.encode_commands(made) == VECTORS["broker-commands"]
    assert list(code.decode_commands(VECTORS["broker-commands"])) == made


def test_the_account_on_the_page_is_what_the_code_reads_and_writes() -> None:
    account = unpack_account("reader1", VECTORS["access-definition"])
    key = KeySealer([b"\x07" * 32]).open("reader1", account.sealed_key)
    assert key == b"reader-secret"
    assert account.pack() == VECTORS["access-definition"]
    assert account == Account(
        "reader1",
        account.sealed_key,
        default_group=Permission.SUB,
        topics={"t": Permission.ANY},
        changed_ms=5,
    )


def test_the_delays_on_the_page_are_those_of_the_code() -> None:
    rows = table("Level")
    delays = [[int(each) for each in cell.split(",")] for _, cell in rows]
    assert [1000 * each for each in chain.from_iterable(delays)] == list(DELAYS_MS)
    edges = [tuple(map(int, levels.split(" to "))) for levels, _ in rows]
    assert edges == [(1, 4), (5, 14), (15, 18)]
    assert [last - first + 1 for first, last in edges] == list(map(len, delays))


def test_words_of_keys_are_parted_by_the_bytes_on_the_page() -> None:
    for octet in {*range(256)} - {1, 2}:  # those two end names and values
        between = bytes((octet, octet))
        properties = b"UNIQ_KEY\x01u\x02KEYS\x01a%bb\x02KEYS\x01no\x02" % between
        parted = 0x09 <= octet <= 0x0D or octet == 0x20
        words = [b"a", b"b"] if parted else [b"a%bb" % between]
        expected = [key_hash("t", word) for word in (b"u", *words)]
        assert list(derive(key_prefix("t"), properties)[1]) == expected
