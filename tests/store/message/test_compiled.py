"""Compiled, a run is packed as in Python, and what is no run is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message.batch import pack_run_in_python
from store.message.record import PendingMessage, iter_records, make_pending_message

compiled = pytest.importorskip("store.message.compiled", reason="built without a C compiler")

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
STORED = struct.pack(">q8s", 1_700_000_000_999, HOST)
TOPIC = b"\x06orders"
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


def pending(body: bytes, properties: bytes, flag: int = 0) -> PendingMessage:
    return make_pending_message(
        "orders", body, properties, flag=flag, born_timestamp=1, born_host=HOST
    )


def packed(pack: Any, *arguments: Any) -> tuple[bytes, bytes, bytes]:
    parts, rows, key_rows = pack(*arguments)
    return b"".join(parts), rows, key_rows


@given(
    st.lists(
        st.tuples(st.binary(max_size=300), PROPERTIES, st.integers(-(1 << 31), (1 << 31) - 1))
    ),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 50),
)
def test_a_run_is_packed_as_in_python(
    content: list[tuple[bytes, bytes, int]], queue_id: int, first_offset: int, position: int
) -> None:
    messages = [pending(*each) for each in content]
    messages += [each._replace(body=memoryview(each.body)) for each in messages]
    run = (messages, TOPIC, queue_id, first_offset, position, STORED, 1_700_000_000)
    found = packed(compiled.pack_run, *run)
    assert found == packed(pack_run_in_python, *run)
    assert len(list(iter_records(found[0]))) == len(messages)


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_what_is_no_pending_message_is_not_packed(field: str, value: object) -> None:
    good = pending(b"body", b"KEYS\x01k\x02")
    changed: Any = {field: value}
    bad = good._replace(**changed)
    for messages in ([bad], [good, bad, good], [good, None], [good, tuple(good)[:8]], (good,)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            compiled.pack_run(messages, TOPIC, 0, 0, 0, STORED, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {1: "topic"},
        {2: 1 << 31},
        {3: (1 << 63) - 1},
        {4: 1 << 63},
        {4: (1 << 63) - 1},
        {5: bytes(15)},
        {6: 1 << 32},
        {7: None},
    ],
)
def test_a_run_of_impossible_numbers_is_not_packed(wrong: dict[int, object]) -> None:
    run: dict[int, object] = dict(
        enumerate(([pending(b"", b"KEYS\x01k\x02")], TOPIC, 0, 0, 0, STORED, 0))
    )
    with pytest.raises((TypeError, ValueError, OverflowError)):
        compiled.pack_run(*(run | wrong).values())
