"""The bytes of send requests, against the vectors of the protocol and the broker's own decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.client_identity import ClientIdentity, UniqueKeys, unique_keys
from broker.client.errors import IllegalMessageError
from broker.client.message import Message
from broker.client.producer.send_encoding import (
    SendTemplates,
    batch_body,
    batch_values,
    batched_size,
    single_values,
)
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.property_templates import MessageBuilder, origin
from broker.remoting.protocol.frame import PREFIX as PREFIX_OF_FRAME
from broker.remoting.protocol.frame import encode_request
from store.message.properties import decode_properties
from tests.support.frames import decode_frame

PREFIX = "0A00000900000000000A"

messages = st.builds(
    lambda body, tags, flag: Message("T", body, tags=tags, flag=flag),
    st.binary(max_size=50),
    st.text("abcÄ", max_size=5),
    st.integers(-(2**31), 2**31 - 1),
)


def test_a_batched_message_has_the_layout_of_the_protocol() -> None:
    encoded = batch_body([Message("T", b"a", tags="T")], PREFIX, 255)
    properties = b"UNIQ_KEY\x01" + PREFIX.encode() + b"0000000000FF\x02TAGS\x01T\x02"
    assert (
        encoded
        == bytes.fromhex(f"{22 + 1 + len(properties):08x}00000000000000000000000000000001")
        + b"a"
        + len(properties).to_bytes(2, "big")
        + properties
    )


@given(st.lists(messages, min_size=1, max_size=20))
def test_a_broker_reads_from_a_batch_what_was_put_in(batch: list[Message]) -> None:
    of = origin("T", 0, 0, bytes(8), 0)
    staged = decode_batch_body(MessageBuilder("east"), of, batch_body(batch, PREFIX, 1))
    assert [(each.flag, each.body) for each in staged] == [(m.flag, m.body) for m in batch]
    keys = [decode_properties(each.properties).pop("UNIQ_KEY") for each in staged]
    assert keys == unique_keys(PREFIX + "000000000001", len(batch))


@given(st.lists(messages, min_size=1, max_size=20))
def test_the_size_of_a_batch_is_known_before_it_is_encoded(batch: list[Message]) -> None:
    assert sum(map(batched_size, batch)) == len(batch_body(batch, PREFIX, 1))


def test_a_single_header_has_the_short_names() -> None:
    message = Message("%RETRY%T", b"x", tags='A"\u2028%d', flag=-3)
    values = single_values(message, "KEY", 99, 1)
    template = SendTemplates("G%d", "%RETRY%T", 4).single
    head = template.encode(0, 7, 1, (*values, 2))
    assert head[:8] == PREFIX_OF_FRAME.pack(len(head) - 4 + 1, len(head) - 8)
    assert decode_frame(head + b"x").ext == {
        "a": "G%d",
        "b": "%RETRY%T",
        "c": "TBW102",
        "d": "4",
        "e": "2",
        "f": "1",
        "g": "99",
        "h": "-3",
        "i": 'UNIQ_KEY\x01KEY\x02TAGS\x01A"\u2028%d\x02',
    }


def test_a_template_makes_the_same_header_as_a_mapping() -> None:
    template = SendTemplates("G", "T", 4).single
    head = template.encode(2, 7, 5, (*single_values(Message("T", b""), "KEY", 99, 0), 3))
    fields = {"a": "G", "b": "T", "c": "TBW102", "d": "4", "f": "0", "g": "99", "h": "0"}
    fields |= {"i": "UNIQ_KEY\x01KEY\x02", "e": "3"}
    assert head == encode_request(310, 7, fields, 5, flag=2)


def test_a_batch_header_says_that_it_is_one() -> None:
    head = SendTemplates("G", "T", 4).batch.encode(0, 1, 0, (*batch_values(99, 1), 5))
    header = decode_frame(head).ext
    assert (header["m"], header["f"], header["g"], header["e"]) == ("true", "1", "99", "5")


def test_a_batch_has_one_compression_because_only_its_header_names_it() -> None:
    plain, compressed = Message("T", b"x"), Message("T", b"x", compressed=1)
    batch_body([compressed, compressed], PREFIX, 1)
    for batch in ([plain, compressed], [compressed, plain]):
        with pytest.raises(IllegalMessageError, match="compressed alike"):
            batch_body(batch, PREFIX, 1)


def test_each_unique_key_follows_the_one_before_until_the_count_begins_anew() -> None:
    keys = UniqueKeys(ClientIdentity("10.0.0.9", 0x12345, 0xAB), lambda: 1)
    assert keys.next() == "0A0000092345000000AB" + "000000010000"
    assert keys.key(keys.take(2)) == "0A0000092345000000AB" + "000000010001"
    assert keys.next() == "0A0000092345000000AB" + "000000010003"
    last = UniqueKeys(ClientIdentity("10.0.0.9", 1, 1), lambda: (1 << 32) - 1)
    last.take(65_535)
    assert last.next()[20:] == "000000000000"


def test_a_unique_key_names_address_process_and_count() -> None:
    keys = UniqueKeys(ClientIdentity("10.0.0.9", 0x12345, 0xAB), lambda: 1)
    assert keys.key(keys.take()) == "0A0000092345000000AB" + "000000010000"
    assert keys.key(keys.take(5)) == "0A0000092345000000AB" + "000000010001"
    assert keys.key(keys.take()) == "0A0000092345000000AB" + "000000010006"


def test_unique_keys_of_a_batch_do_not_wrap_around() -> None:
    keys = UniqueKeys(ClientIdentity("10.0.0.9", 1, 1), lambda: (1 << 32) - 1)
    last = keys.take(65_530)
    first = keys.take(10)
    assert first == 0
    assert last + 65_530 < 1 << 48
