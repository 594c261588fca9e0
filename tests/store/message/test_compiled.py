"""Compiled, runs are packed as in Python, and what is no run is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message.batch import QueueRun, pack_runs, pack_runs_in_python
from store.message.record import PendingMessage, iter_records, make_pending_message

compiled = pytest.importorskip("store.message.compiled", reason="built without a C compiler")

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
STORED = struct.pack(">q8s", 1_700_000_000_999, HOST)
PROPERTIES = st.sampled_from(
    [b"", b"TAGS\x01x\x02", b"KEYS\x01k1 k2\x02", b"UNIQ_KEY\x01u\x02TAGS\x01y\x02KEYS\x01k\x02"]
)
WRONG: list[tuple[str, object]] = [
    ("size", 118),
    ("size", -1),
    ("size", 1 << 40),
    ("size", "119"),
    ("body", b"other size"),
    ("body", 7),
    ("properties", bytes(65536)),
    ("properties", None),
    ("flag", 1 << 31),
    ("born", bytes(19)),
    ("tried", bytes(13)),
    ("body_crc", 1 << 31),
    ("tags_code", 1 << 63),
    ("key_hashes", (1 << 32,)),
    ("key_hashes", ("a",)),
    ("key_hashes", [1]),
]


def pending(topic: str, body: bytes, properties: bytes, flag: int = 0) -> PendingMessage:
    return make_pending_message(
        topic, body, properties, flag=flag, born_timestamp=1, born_host=HOST
    )


def packed(pack: Any, *arguments: Any) -> tuple[bytes, ...]:
    parts, *others = pack(*arguments)
    return b"".join(parts), *others


MESSAGES = st.lists(
    st.tuples(st.binary(max_size=300), PROPERTIES, st.integers(-(1 << 31), (1 << 31) - 1)),
    max_size=5,
)
RUNS = st.lists(
    st.tuples(st.sampled_from(["orders", "größe", "t" * 127]), st.integers(0, 1 << 20), MESSAGES)
)


@given(RUNS, st.integers(0, 1 << 40), st.integers(0, 1 << 50))
def test_runs_are_packed_as_in_python(
    content: list[tuple[str, int, list[tuple[bytes, bytes, int]]]], offset: int, position: int
) -> None:
    runs = []
    for topic, queue_id, bodies in content:
        messages = [pending(topic, *each) for each in bodies]
        messages += [each._replace(body=memoryview(each.body)) for each in messages]
        runs.append(QueueRun(topic, queue_id, offset, messages))
    found = packed(compiled.pack_runs, runs, position, STORED, 1_700_000_000)
    assert found == packed(pack_runs_in_python, runs, position, STORED, 1_700_000_000)
    assert len(list(iter_records(found[0]))) == sum(len(run.messages) for run in runs)


def test_large_records_are_not_copied() -> None:
    large = pending("orders", bytes(40_000), b"")
    small = pending("orders", b"", b"")
    of_a_run = [QueueRun("orders", 0, 0, [large])], 0, STORED, 0
    assert compiled.pack_runs(*of_a_run) is None
    parts, *_others = pack_runs(*of_a_run)
    assert any(part is large.body for part in parts)
    of_both = [QueueRun("orders", 0, 0, [large, small]), QueueRun("orders", 1, 0, [small])]
    assert compiled.pack_runs(of_both, 0, STORED, 0) is not None


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_what_is_no_pending_message_is_not_packed(field: str, value: object) -> None:
    good = pending("orders", b"body", b"KEYS\x01k\x02")
    changed: Any = {field: value}
    bad = good._replace(**changed)
    for messages in ([bad], [good, bad, good], [good, None], [good, tuple(good)[:8]], (good,)):
        runs: list[Any] = [
            QueueRun("orders", 0, 0, [good]),
            ("orders", 1, 0, messages),
        ]
        with pytest.raises((TypeError, ValueError, OverflowError)):
            compiled.pack_runs(runs, 0, STORED, 0)


GOOD = pending("orders", b"", b"KEYS\x01k\x02")


@pytest.mark.parametrize(
    "run",
    [
        None,
        ("orders", 0, 0),
        ["orders", 0, 0, [GOOD]],
        (b"orders", 0, 0, [GOOD]),
        ("t" * 256, 0, 0, [GOOD]),
        ("bills!", 0, 0, [GOOD, None]),
        ("bill", 0, 0, [GOOD]),
        ("\ud800", 0, 0, [GOOD]),
        ("orders", 1 << 31, 0, [GOOD]),
        ("orders", 0, (1 << 63) - 1, [GOOD]),
        ("orders", "0", 0, [GOOD]),
    ],
)
def test_what_is_no_run_is_not_packed(run: object) -> None:
    for runs in ([run], [QueueRun("orders", 0, 0, [GOOD]), run], (run,)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            compiled.pack_runs(runs, 0, STORED, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {1: 1 << 63},
        {1: (1 << 63) - 1},
        {2: bytes(15)},
        {3: 1 << 32},
        {4: None},
    ],
)
def test_runs_of_impossible_numbers_are_not_packed(wrong: dict[int, object]) -> None:
    arguments: dict[int, object] = dict(
        enumerate(([QueueRun("orders", 0, 0, [GOOD])], 0, STORED, 0))
    )
    with pytest.raises((TypeError, ValueError, OverflowError)):
        compiled.pack_runs(*(arguments | wrong).values())
