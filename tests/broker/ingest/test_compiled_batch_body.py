"""Compiled, the messages of a batch that are alike are taken as in Python."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import broker.ingest.batch_body
from broker.errors import IllegalMessageError
from broker.ingest.batch_body import decode_batch_body, take_alike_in_python
from broker.ingest.message_properties import storable_in_batch
from broker.ingest.property_templates import MessageBuilder, origin
from store.message.record import PendingMessage

compiled = pytest.importorskip("store.message.compiled", reason="built without a C compiler")

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
AROUND = st.tuples(
    st.sampled_from(["", "WAIT\x01true\x02", "TAGS\x01a\x02", "CLUSTER\x01east\x02"]),
    st.sampled_from(["", "\x02", "\x02WAIT\x01true\x02", "\x02KEYS\x01k\x02"]),
)


def sent(flag: int, body: bytes, properties: bytes) -> bytes:
    start = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return start + body + struct.pack(">H", len(properties)) + properties


def decoded(take: Any, data: bytes, of_all: bytes, most: int) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.ingest.batch_body, "take_alike", take)
        try:
            return decode_batch_body(
                MessageBuilder("DefaultCluster", storable_in_batch),
                origin("orders", 1, 1234, HOST, 2),
                data,
                of_all,
                messages_max=most,
            )
        except IllegalMessageError as error:
            return str(error)


@given(
    AROUND,
    st.lists(
        st.tuples(
            st.integers(-(1 << 31), (1 << 31) - 1),
            st.binary(max_size=40),
            st.sampled_from(["k1", "k2", "k\x02", "abcd", ""]),
        ),
        max_size=8,
    ),
    st.sampled_from([b"", b"WAIT\x01a\x02"]),
    st.integers(1, 9),
    st.integers(0, 1 << 30),
)
def test_a_batch_is_taken_as_in_python(
    around: tuple[str, str],
    content: list[tuple[int, bytes, str]],
    of_all: bytes,
    most: int,
    seed: int,
) -> None:
    before, after = around
    data = b"".join(
        sent(flag, body, f"{before}UNIQ_KEY\x01{key}{after}".encode())
        for flag, body, key in content
    )
    rng = Random(seed)
    broken = bytearray(data)
    for _ in range(min(len(broken), 2)):
        broken[rng.randrange(len(broken))] = rng.choice((0, 1, 2, 127, 128, 255))
    for each in (data, bytes(broken), bytes(broken[: rng.randrange(len(broken) + 1)])):
        found = decoded(compiled.take_alike, each, of_all, most)
        assert found == decoded(take_alike_in_python, each, of_all, most)
        assert not isinstance(found, list) or {type(one) for one in found} <= {PendingMessage}


@pytest.mark.parametrize(
    "wrong",
    [
        {0: ()},
        {1: bytearray()},
        {2: -1},
        {2: 1},
        {3: -1},
        {4: (HOST, HOST, 1)},
        {4: (HOST, HOST, 1, -1)},
        {5: ()},
        {5: (1, None, b"", b"", b"", b"", False, 0, 0)},
        {5: (9, None, b"123456", b"1234", b"", b"", False, 0, 0)},
        {5: (9, None, b"", "", b"", b"", False, 0, 0)},
        {6: PendingMessage},
    ],
)
def test_no_batch_is_taken_by_a_wrong_template(wrong: dict[int, object]) -> None:
    template = (9, None, b"", b"", b"", b"", False, 0, 0)
    good: tuple[object, ...] = ([], b"", 0, 9, (HOST, HOST, 1, 91), template)
    arguments: dict[int, object] = dict(enumerate(good))
    assert compiled.take_alike(*arguments.values()) == 0
    with pytest.raises((TypeError, ValueError, OverflowError)):
        compiled.take_alike(*(arguments | wrong).values())
