"""The only place that reads the machine's wall clock; other code gets a clock as a parameter."""

from __future__ import annotations

import time


def system_clock_ms() -> int:
    """Milliseconds since 1970, only for timestamps; durations come from the loop."""
    return time.time_ns() // 1_000_000
