"""Exports spans to an OTLP endpoint over HTTP, on a thread of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from broker.tracing.message_tracer import MessageTracer

EXPORT_SECONDS = 2
"""How long an endpoint may take to answer, also while the node stops."""


def open_tracer(
    endpoint: str, cluster: str, broker: str
) -> tuple[MessageTracer, Callable[[], None]]:
    """The tracer of a broker, and a function that sends the last spans and ends the thread."""
    resource = Resource.create(
        {"service.name": "dledger", "service.namespace": cluster, "service.instance.id": broker}
    )
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return MessageTracer(provider.get_tracer("dledger"), broker), provider.shutdown
