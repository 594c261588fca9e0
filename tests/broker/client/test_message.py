"""Messages to send: their properties, and what may not be in them."""

from __future__ import annotations

import pytest

from broker.client.errors import IllegalMessageError
from broker.client.message import Message, MessageQueue, SendResult, SendStatus
from store.message.properties import decode_properties


def test_another_body_keeps_everything_else() -> None:
    message = Message("T", b"one", tags="A", keys="k", delay_level=3, flag=9)
    other = message.with_body(b"two")
    assert (other.topic, other.body, other.flag, other.delay_level) == ("T", b"two", 9, 3)
    assert other.property_bytes is message.property_bytes


def test_a_delay_level_is_a_property() -> None:
    assert decode_properties(Message("T", b"", delay_level=5).property_bytes) == {"DELAY": "5"}


@pytest.mark.parametrize("text", ["a\x01b", "a\x02b"])
def test_properties_cannot_hold_their_separators(text: str) -> None:
    with pytest.raises(IllegalMessageError, match="separator"):
        Message("T", b"", properties={"p": text})


def test_the_unique_key_is_not_the_callers() -> None:
    with pytest.raises(IllegalMessageError, match="UNIQ_KEY"):
        Message("T", b"", properties={"UNIQ_KEY": "mine"})


def test_properties_have_a_limit() -> None:
    Message("T", b"", properties={"p": "x" * (32_767 - 64 - 3)})
    with pytest.raises(IllegalMessageError, match="limit"):
        Message("T", b"", properties={"p": "x" * (32_767 - 64 - 2)})


def test_a_flag_is_an_i32() -> None:
    assert [Message("T", b"", flag=flag).flag for flag in (-(2**31), 2**31 - 1)]
    for flag in (-(2**31) - 1, 2**31):
        with pytest.raises(IllegalMessageError, match=f"the flag {flag} "):
            Message("T", b"", flag=flag)


def test_a_result_names_every_message_of_a_batch() -> None:
    queue = MessageQueue("T", "b", 0)
    result = SendResult(SendStatus.OK, queue, 7, 3, "X,Y,Z", "0A00000900000000000A00000000000F")
    assert result.message_ids == ["X", "Y", "Z"]
    assert [key[-2:] for key in result.unique_keys] == ["0F", "10", "11"]
