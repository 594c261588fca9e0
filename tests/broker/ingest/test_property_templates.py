"""Staging by shape gives what staging each message by itself would."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

import broker.ingest.property_templates
from broker.errors import IllegalMessageError
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.message_properties import (
    NeedsRoutingError,
    storable_in_batch,
    storable_properties,
)
from broker.ingest.property_templates import MessageBuilder, origin
from broker.limits import PRODUCE
from broker.remoting.error_responses import response_code_of
from broker.remoting.protocol.codes import ResponseCode
from store.message.record import PROPERTIES_BYTES_MAX, PendingMessage, make_pending_message

HOST = b"\x7f\0\0\1\0\0\0\7"
ORIGIN = origin("orders", 1, 1234, HOST, 2)

names = st.sampled_from(["UNIQ_KEY", "XUNIQ_KEY", "KEYS", "TAGS", "WAIT", "AWAIT", "TAG", "", "ä"])
values = st.text(st.sampled_from("ab ä"), max_size=4)
pairs = st.lists(st.tuples(names, values), max_size=5)
endings = st.sampled_from(["", "\x02", "\x02\x02", "\x01", "UNIQ_KEY\x01"])


@st.composite
def property_bytes(draw: st.DrawFn) -> bytes:
    text = "\x02".join(f"{name}\x01{value}" for name, value in draw(pairs)) + draw(endings)
    return text.encode()


def one_by_one(
    flag: int,
    body: bytes,
    properties: bytes,
    storable: Callable[[bytes], bytes] = storable_properties,
) -> PendingMessage:
    return make_pending_message(
        "orders",
        body,
        storable(properties),
        flag=flag,
        sys_flag=1,
        born_timestamp=1234,
        born_host=HOST,
        reconsume_times=2,
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9), property_bytes()), max_size=9))
def test_a_message_is_staged_as_if_it_were_the_first(
    messages: list[tuple[int, bytes, bytes]],
) -> None:
    message_builder = MessageBuilder("DefaultCluster")
    for message in messages * 2:  # the second time by what was learnt
        assert message_builder.build(ORIGIN, *message) == one_by_one(*message)


def in_a_batch(flag: int, body: bytes, properties: bytes) -> bytes:
    start = pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return start + body + len(properties).to_bytes(2, "big") + properties


@given(
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9), property_bytes()), max_size=4),
    st.lists(st.integers(0, 3), max_size=9),
    st.sampled_from(
        [b"", b"KEYS\x01all\x02", b"WAIT\x01a\x02", b"WAIT\x01a\x02TAG\x01b", b"UNIQ_KEY\x01a\x02"]
    ),
)
def test_messages_of_a_batch_are_staged_as_each_by_itself(
    kinds: list[tuple[int, bytes, bytes]], order: list[int], of_all: bytes
) -> None:
    sent = [kinds[place] for place in order if place < len(kinds)]
    data = b"".join(in_a_batch(*message) for message in sent)
    expected = []
    for flag, body, properties in sent:
        there = properties.split(b"\x02")
        added = [pair for pair in of_all.split(b"\x02") if pair and pair not in there]
        joined = properties
        if added:
            unended = properties and not properties.endswith(b"\x02")
            joined += (b"\x02" if unended else b"") + b"\x02".join([*added, b""])
        expected.append(one_by_one(flag, body, joined, storable_in_batch))
    message_builder = MessageBuilder("DefaultCluster", storable_in_batch)
    assert list(decode_batch_body(message_builder, ORIGIN, data, of_all)) == expected


@given(
    st.sampled_from(
        ["", "WAIT\x01true\x02", "TAGS\x01a\x02", "XUNIQ_KEY\x01k\x02", "WAIT\x01t\x02"]
    ),
    st.sampled_from(["", "\x02", "\x02WAIT\x01true\x02", "\x02TAGS\x01a\x02", "\x02KEYS\x01k\x02"]),
    st.lists(st.sampled_from(["k1", "k2", "\x02\x02", "a\x02", "ab\x02UNIQ_KEY\x01", "", "\x01"])),
)
def test_messages_that_differ_in_their_unique_key_are_staged_as_each_by_itself(
    before: str, after: str, keys: list[str]
) -> None:
    sent = [
        (number, b"body" * number, f"{before}UNIQ_KEY\x01{key}{after}".encode())
        for number, key in enumerate(keys)
    ]
    data = b"".join(in_a_batch(*message) for message in sent)
    staged = decode_batch_body(MessageBuilder("DefaultCluster"), ORIGIN, data)
    assert list(staged) == [one_by_one(*message) for message in sent]


@given(
    st.permutations(["UNIQ_KEY\x01{unique}", "KEYS\x01{keys}", "WAIT\x01true", "TAGS\x01a"]),
    st.integers(2, 4),
    st.sampled_from(["", "\x02", "\x02KEYS\x01b", "\x02XKEYS\x01b\x02", "\x02DELAY\x011"]),
    st.lists(st.tuples(values, values), max_size=6),
)
def test_messages_with_keys_of_their_own_are_staged_as_each_by_itself(
    order: list[str], count: int, ending: str, own: list[tuple[str, str]]
) -> None:
    """Of four properties in any order, some may be missing."""
    message_builder = MessageBuilder("DefaultCluster")
    text = "\x02".join(order[:count]) + ending
    for unique, keys in own * 2:
        properties = text.format(unique=unique, keys=keys).encode()
        try:
            expected = one_by_one(0, b"body", properties)
        except NeedsRoutingError:
            with pytest.raises(NeedsRoutingError):
                message_builder.build(ORIGIN, 0, b"body", properties)
        else:
            assert message_builder.build(ORIGIN, 0, b"body", properties) == expected


def test_keys_of_their_own_are_checked_and_their_templates_bounded() -> None:
    message_builder = MessageBuilder("DefaultCluster")
    for number in range(PRODUCE.property_templates_max + 2):
        properties = b"KEYS\x01k%d\x02TAGS\x01%d\x02" % (number, number)
        assert message_builder.build(ORIGIN, 0, b"", properties).tags_code
        assert len(message_builder._keyed_templates) <= PRODUCE.property_templates_max
    with pytest.raises(IllegalMessageError, match="keys"):
        message_builder.build(ORIGIN, 0, b"", b"KEYS\x01" + b"k " * (PRODUCE.keys_max + 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("TAGS\x01a\x02UNIQ_KEY\x01k\x02", "TAGS\x01b\x02UNIQ_KEY\x01k\x02"),
        ("UNIQ_KEY\x01k\x02TAGS\x01a\x02", "UNIQ_KEY\x01k\x02TAGS\x01b\x02"),
        ("UNIQ_KEY\x01kkkk\x02A\x011\x02", "UNIQ_KEY\x01k\x02\x01\x02\x02A\x011\x02"),
        ("TAGS\x01a\x02UNIQ_KEY\x01k\x02", "TAGS\x01a\x02UNIQ_KEX\x01k\x02"),
    ],
)
def test_a_message_that_differs_in_more_than_its_unique_key_is_read_anew(
    one: str, other: str
) -> None:
    sent = [(0, b"body", text.encode()) for text in (one, other, other, one, one)]
    staged = decode_batch_body(
        MessageBuilder("DefaultCluster"), ORIGIN, b"".join(in_a_batch(*message) for message in sent)
    )
    assert list(staged) == [one_by_one(*message) for message in sent]


def test_a_unique_key_that_nothing_ends_is_stored_as_it_was_sent() -> None:
    message = 0, b"", b"WAIT\x01true\x02UNIQ_KEY\x01a"
    assert MessageBuilder("DefaultCluster").build(ORIGIN, *message) == one_by_one(*message)


def test_a_header_cannot_blow_up_a_batch() -> None:
    """Each of a hundred thousand messages would get 32 kB."""
    data = in_a_batch(0, b"", b"") * 100_000
    of_all = b"".join(b"%d\x01\x02" % number for number in range(4500))
    with pytest.raises(IllegalMessageError, match="the header's properties add more than"):
        decode_batch_body(MessageBuilder("DefaultCluster", storable_in_batch), ORIGIN, data, of_all)


def test_properties_that_are_too_long_are_refused_also_where_their_shape_is_known() -> None:
    message_builder = MessageBuilder("DefaultCluster")
    message_builder.build(ORIGIN, 0, b"", b"UNIQ_KEY\x01a\x02TAGS\x01t\x02")
    with pytest.raises(IllegalMessageError, match=f"{PROPERTIES_BYTES_MAX} fit") as refused:
        message_builder.build(ORIGIN, 0, b"", b"UNIQ_KEY\x01" + b"a" * 32767 + b"\x02TAGS\x01t\x02")
    assert response_code_of(refused.value) == ResponseCode.MESSAGE_ILLEGAL


def test_more_shapes_than_are_remembered_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        broker.ingest.property_templates, "PRODUCE", PRODUCE._replace(property_templates_max=2)
    )
    message_builder = MessageBuilder("DefaultCluster")
    for number in [*range(7), *range(7)]:
        message = 0, b"x", f"TAGS\x01{number}\x02".encode()
        assert message_builder.build(ORIGIN, *message) == one_by_one(*message)


def test_a_shape_that_is_long_is_not_remembered() -> None:
    message_builder = MessageBuilder("DefaultCluster")
    for size, known in (
        (PRODUCE.property_template_bytes_max - 50, True),
        (PRODUCE.property_template_bytes_max, False),
    ):
        message = 0, b"x", b"UNIQ_KEY\x01k\x02A\x01%b\x02" % (b"a" * size)
        assert message_builder.build(ORIGIN, *message) == one_by_one(*message)
        assert (message_builder.batch_template(message[2]) is not None) is known


@pytest.mark.parametrize("key", ["", "UNIQ_KEY\x01k\x02", "UNIQ_KEY\x01k"])
def test_a_request_is_told_the_cluster_by_whose_topic_it_is_answered(key: str) -> None:
    message_builder = MessageBuilder("east")
    for asker in ("a", "b"):
        properties = f"REPLY_TO_CLIENT\x01{asker}\x02{key}".encode()
        staged = message_builder.build(ORIGIN, 0, b"", properties)
        assert staged.properties == b"CLUSTER\x01east\x02" + properties
    full = b"REPLY_TO_CLIENT\x01" + b"a" * (PROPERTIES_BYTES_MAX - 20)
    assert message_builder.build(ORIGIN, 0, b"", full).properties == full
