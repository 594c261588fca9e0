"""Messages that are made within a span carry its context."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from broker.client.message import Message
from store.message.properties import decode_properties


def traceparent(message: Message) -> str | None:
    return decode_properties(message.property_bytes).get("traceparent")


def test_a_message_carries_the_context_of_the_span_in_which_it_is_made() -> None:
    import opentelemetry.propagate  # noqa: F401, PLC0415 - as a program does that traces

    with TracerProvider().get_tracer("test").start_as_current_span("order") as span:
        message = Message("orders", b"x", keys="k")
        context = span.get_span_context()
    trace, span_id = format_trace_id(context.trace_id), format_span_id(context.span_id)
    assert traceparent(message) == f"00-{trace}-{span_id}-{context.trace_flags:02x}"
    assert decode_properties(message.property_bytes)["KEYS"] == "k"
    own = Message("orders", b"x", properties={"traceparent": "mine"})
    assert traceparent(own) == "mine"


def test_outside_of_a_span_a_message_carries_none() -> None:
    assert Message("orders", b"x").property_bytes == b""
