"""Staging by shape gives what staging each message by itself would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import broker.processors.shapes
from broker.processors.sendheader import PROPERTIES_SIZE_MAX, storable_properties
from broker.processors.shapes import Origin, Stager, topic_constants
from broker.remoting.codes import ResponseCode
from broker.remoting.errors import RequestError
from store.record import StagedMessage, stage_message

ORIGIN = Origin("orders", 1, 1234, b"\x7f\0\0\1\0\0\0\7", 2, *topic_constants("orders"))

names = st.sampled_from(["UNIQ_KEY", "XUNIQ_KEY", "KEYS", "TAGS", "WAIT", "AWAIT", "TAG", "", "ä"])
values = st.text(st.sampled_from("ab ä"), max_size=4)
pairs = st.lists(st.tuples(names, values), max_size=5)
endings = st.sampled_from(["", "\x02", "\x02\x02", "\x01", "UNIQ_KEY\x01"])


@st.composite
def property_bytes(draw: st.DrawFn) -> bytes:
    text = "\x02".join(f"{name}\x01{value}" for name, value in draw(pairs)) + draw(endings)
    return text.encode()


def one_by_one(flag: int, body: bytes, properties: bytes) -> StagedMessage:
    return stage_message(
        ORIGIN.topic,
        body,
        storable_properties(properties),
        flag=flag,
        sys_flag=ORIGIN.sys_flag,
        born_timestamp=ORIGIN.born_timestamp,
        born_host=ORIGIN.born_host,
        reconsume_times=ORIGIN.reconsume_times,
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9), property_bytes()), max_size=9))
def test_a_message_is_staged_as_if_it_were_the_first(
    messages: list[tuple[int, bytes, bytes]],
) -> None:
    stager = Stager("DefaultCluster")
    for message in messages * 2:  # the second time by what was learnt
        assert stager.stage(ORIGIN, *message) == one_by_one(*message)


def test_a_unique_key_that_nothing_ends_is_stored_as_it_was_sent() -> None:
    message = 0, b"", b"WAIT\x01true\x02UNIQ_KEY\x01a"
    assert Stager("DefaultCluster").stage(ORIGIN, *message) == one_by_one(*message)


def test_properties_that_are_too_long_are_refused_also_where_their_shape_is_known() -> None:
    stager = Stager("DefaultCluster")
    stager.stage(ORIGIN, 0, b"", b"UNIQ_KEY\x01a\x02TAGS\x01t\x02")
    with pytest.raises(RequestError, match=f"{PROPERTIES_SIZE_MAX} fit") as refused:
        stager.stage(ORIGIN, 0, b"", b"UNIQ_KEY\x01" + b"a" * 32767 + b"\x02TAGS\x01t\x02")
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_more_shapes_than_are_remembered_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.processors.shapes, "SHAPES_MAX", 2)
    stager = Stager("DefaultCluster")
    for number in [*range(7), *range(7)]:
        message = 0, b"x", f"TAGS\x01{number}\x02".encode()
        assert stager.stage(ORIGIN, *message) == one_by_one(*message)


@pytest.mark.parametrize("key", ["", "UNIQ_KEY\x01k\x02", "UNIQ_KEY\x01k"])
def test_a_request_is_told_the_cluster_by_whose_topic_it_is_answered(key: str) -> None:
    stager = Stager("east")
    for asker in ("a", "b"):
        properties = f"REPLY_TO_CLIENT\x01{asker}\x02{key}".encode()
        staged = stager.stage(ORIGIN, 0, b"", properties)
        assert staged.properties == b"CLUSTER\x01east\x02" + properties
    full = b"REPLY_TO_CLIENT\x01" + b"a" * (PROPERTIES_SIZE_MAX - 20)
    assert stager.stage(ORIGIN, 0, b"", full).properties == full
