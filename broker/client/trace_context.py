"""The context of the caller's span, which a message carries to the broker and to its consumer."""

from __future__ import annotations

import sys

TRACEPARENT = "traceparent"
"""As the W3C's Trace Context names it."""


def trace_properties() -> dict[str, str]:
    """The property for a message that is made now; nothing in a program that does not trace.

    OpenTelemetry is not imported: a program with a span of its own has done that.
    """
    propagate = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    found = carrier.get(TRACEPARENT)
    return {} if found is None else {TRACEPARENT: found}
