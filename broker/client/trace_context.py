"""The trace context of the caller's span, which a message takes to the broker and to its
consumer."""

from __future__ import annotations

import sys

TRACEPARENT = "traceparent"
"""The name in the W3C's Trace Context."""


def trace_properties() -> dict[str, str]:
    """The property for a message that is made now; empty in a program without tracing.

    This does not import OpenTelemetry: a program with a span has imported it.
    """
    propagate = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    found = carrier.get(TRACEPARENT)
    return {} if found is None else {TRACEPARENT: found}
