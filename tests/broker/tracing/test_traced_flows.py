"""Spans of traced messages: who is whose child, what they say, and that others have none."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.tracing.message_tracer import MessageTracer
from broker.tracing.traced_flows import TracedDelivery, TracedIngest
from store.message.properties import encode_properties
from tests.broker.single_broker import SingleBroker, batched, messages, send_ext

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


def traceparent(parent: int = PARENT, flags: int = 1) -> str:
    return f"00-{TRACE:032x}-{parent:016x}-{flags:02x}"


def properties(value: str) -> str:
    return encode_properties({"traceparent": value, "KEYS": "k"}).decode()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def broker_settings(exporter: InMemorySpanExporter) -> dict[str, Any]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = MessageTracer(provider.get_tracer("test"), "broker-a/n0")
    flows = {
        "make_ingest": partial(TracedIngest, tracer),
        "make_delivery": partial(TracedDelivery, tracer),
    }
    return {"flows": flows}


@pytest.fixture
async def broker(broker: SingleBroker) -> SingleBroker:
    await broker.create_topic("orders")
    return broker


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    spans = exporter.get_finished_spans()
    assert len({span.name for span in spans}) == len(spans)
    return {span.name: span for span in spans}


async def test_a_message_has_spans_of_send_commit_and_delivery_below_its_producers(
    broker: SingleBroker, exporter: InMemorySpanExporter
) -> None:
    answer = await broker.send("orders", 1, b"x", properties(traceparent()))
    assert answer.code == ResponseCode.SUCCESS
    spans = by_name(exporter)
    send, commit = spans["send orders"], spans["commit"]
    assert send.parent is not None
    assert commit.parent is not None
    assert (send.parent.trace_id, send.parent.span_id) == (TRACE, PARENT)
    assert commit.parent.span_id == send.context.span_id
    assert send.kind is SpanKind.SERVER
    assert dict(send.attributes or {}) == {
        "messaging.system": "rocketmq",
        "dledger.node": "broker-a/n0",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "1",
        "messaging.rocketmq.queue_offset": 0,
    }
    exporter.clear()
    (record,) = messages(await broker.pull("orders", 1, 0))
    assert b"traceparent" in record.properties
    deliver = by_name(exporter)["deliver orders"]
    assert deliver.parent is not None
    assert (deliver.parent.trace_id, deliver.parent.span_id) == (TRACE, PARENT)
    assert (deliver.attributes or {})["messaging.consumer.group.name"] == "readers"


@pytest.mark.parametrize(
    "value", [None, "nonsense", traceparent().replace("0af7", "zzzz"), traceparent(flags=0)]
)
async def test_a_message_that_is_not_traced_has_no_spans(
    broker: SingleBroker, exporter: InMemorySpanExporter, value: str | None
) -> None:
    text = "" if value is None else properties(value)
    answer = await broker.send("orders", 0, b"traceparent", text)
    assert answer.code == ResponseCode.SUCCESS
    assert len(messages(await broker.pull("orders", 0, 0))) == 1
    assert exporter.get_finished_spans() == ()


async def test_a_batch_is_one_span_with_links_to_all_its_producers(
    broker: SingleBroker, exporter: InMemorySpanExporter
) -> None:
    body = b"".join(
        batched(b"x", encode_properties({"traceparent": traceparent(PARENT + number)}))
        for number in range(3)
    )
    answer = await broker.ask(
        RequestCode.SEND_BATCH_MESSAGE, send_ext("orders", 0) | {"m": "true"}, body
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    send = by_name(exporter)["send orders"]
    assert send.parent is not None
    assert send.parent.span_id == PARENT
    assert [link.context.span_id for link in send.links] == [PARENT + 1, PARENT + 2]


async def test_a_refused_message_ends_its_spans_with_the_reason(
    broker: SingleBroker, exporter: InMemorySpanExporter
) -> None:
    answer = await broker.send("orders", 9, b"x", properties(traceparent()))
    assert answer.code != ResponseCode.SUCCESS
    for span in by_name(exporter).values():
        assert span.status.status_code is StatusCode.ERROR
        assert "no queue 9" in (span.status.description or "")
