"""Spans of messages whose producers trace them.

A message has the context of its producer's span in the property ``traceparent`` (W3C Trace
Context). A message without it has no spans. Spans of a message that its producer does not sample
are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from store.io.filesystem import Bytes
from store.message.properties import find_property
from store.message.record import iter_records

TRACEPARENT = b"traceparent"

_BATCHED = re.compile(rb"traceparent\x01([0-9a-f-]{55})")
"""The property within the body of a batch."""

_propagator = TraceContextTextMapPropagator()


class MessageTracer:
    """Makes spans with ``tracer``."""

    def __init__(self, tracer: Tracer, broker: str) -> None:
        """``broker`` is the name of the node, for each span."""
        self._tracer = tracer
        self._broker = broker

    def begin_send(self, topic: str, properties: bytes) -> Span | None:
        """The span of a send, from its request to its answer."""
        value = find_property(properties, TRACEPARENT)
        context = None if value is None else _context_of(value)
        if context is None:
            return None
        return self._begin(f"send {topic}", context, {"messaging.destination.name": topic})

    def begin_send_batch(self, topic: str, body: bytes) -> Span | None:
        """As :meth:`begin_send`: a child of the first message's span, with links to the others."""
        contexts = [_context_of(value) for value in _BATCHED.findall(body)]
        found = [context for context in contexts if context is not None]
        if not found:
            return None
        links = [Link(get_current_span(context).get_span_context()) for context in found[1:]]
        attributes = {"messaging.destination.name": topic}
        return self._begin(f"send {topic}", found[0], attributes, links)

    def begin_commit(self, send: Span) -> Span:
        """The span from the addition to a batch until the entry is committed and applied."""
        context = set_span_in_context(send, Context())
        return self._tracer.start_span("commit", context, kind=SpanKind.INTERNAL)

    def delivered(self, group: str, topic: str, queue_id: int, parts: Sequence[Bytes]) -> None:
        """Makes spans for records that are delivered to a consumer."""
        for part in parts:
            encoded = bytes(part)
            if TRACEPARENT not in encoded:
                continue
            for record in iter_records(encoded):
                value = find_property(bytes(record.properties), TRACEPARENT)
                context = None if value is None else _context_of(value)
                if context is not None:
                    attributes: dict[str, str | int] = {
                        "messaging.destination.name": topic,
                        "messaging.destination.partition.id": str(queue_id),
                        "messaging.consumer.group.name": group,
                        "messaging.rocketmq.queue_offset": record.queue_offset,
                    }
                    self._begin(f"deliver {topic}", context, attributes).end()

    def _begin(
        self,
        name: str,
        context: Context,
        attributes: Mapping[str, str | int],
        links: Sequence[Link] = (),
    ) -> Span:
        return self._tracer.start_span(
            name,
            context,
            kind=SpanKind.SERVER,
            links=links,
            attributes={"messaging.system": "rocketmq", "dledger.node": self._broker, **attributes},
        )


def fail(span: Span, error: BaseException) -> None:
    """Ends the span of a request that was refused, or whose outcome is unknown."""
    span.set_status(StatusCode.ERROR, str(error))
    span.end()


def _context_of(value: bytes) -> Context | None:
    context = _propagator.extract({"traceparent": value.decode("ascii", "replace")}, Context())
    return context if get_current_span(context).get_span_context().is_valid else None
