"""The only place that reads the machine's wall clock; everything else gets one."""

from __future__ import annotations

import time


def system_clock_ms() -> int:
    """Milliseconds since 1970. It is only for timestamps in messages; durations come from the
    loop."""
    return time.time_ns() // 1_000_000
