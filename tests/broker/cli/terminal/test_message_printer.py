"""Messages in the layout that the user has asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.terminal.message_printer import FIELDS, MessageFormat, MessagePrinter
from broker.cli.terminal.output import Output
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, ReceivedMessage
from tests.broker.client.test_received_message import VECTOR, with_compressed_body

QUEUE = MessageQueue("TopicTest", "broker-a", 3)
(MESSAGE,) = PulledBatch(QUEUE, VECTOR, 8)


def render(layout: str, message: ReceivedMessage = MESSAGE) -> str:
    return MessageFormat(layout).render(message).decode()


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("%t/%b/%q/%o", "TopicTest/broker-a/3/7"),
        ("%s\\n", "Hello RocketMQ\n"),
        ("%S %g [%k] %i", "14 TagA [] 0A00000100002A9F0000000000000000"),
        ("%{TAGS}|%{none}|%h", "TagA||TAGS=TagA"),
        ("100%% \\\\ \\t.", "100% \\ \t."),
        ("", ""),
        ("\u00e4", "\u00e4"),
    ],
)
def test_letters_stand_for_parts_of_the_message(layout: str, expected: str) -> None:
    assert render(layout) == expected


@pytest.mark.parametrize("layout", ["%", "%z", "%{TAGS", "\\", "\\q", "a%"])
def test_a_layout_that_means_nothing_is_refused(layout: str) -> None:
    with pytest.raises(ValueError, match="is not a field"):
        MessageFormat(layout)


@given(st.text(alphabet="".join(FIELDS) + "%{}\\nt \u20ac"))
def test_any_layout_is_refused_or_rendered(layout: str) -> None:
    try:
        parsed = MessageFormat(layout)
    except ValueError:
        return
    parsed.render(MESSAGE)


@pytest.mark.parametrize(
    ("output", "layout", "expected"),
    [
        (Output.TABLE, None, b"??\n"),
        (Output.TABLE, MessageFormat("%o:%s"), b"7:??"),
        (Output.JSON, None, b'"body":"??"}\n'),
        (Output.YAML, None, b"body: ??\n"),
    ],
)
def test_a_body_that_cannot_be_decompressed_is_printed_as_stored(
    output: Output,
    layout: MessageFormat | None,
    expected: bytes,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    batch = PulledBatch(QUEUE, with_compressed_body(VECTOR, b"??", 0x1), 8)
    MessagePrinter(output, layout).print_batch(batch, 1)
    assert capfdbinary.readouterr().out.endswith(expected)
