"""Counters of one process since it started, for runtime info and ``/status``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerStats:
    """Messages, not requests. ``boot_ms`` is when the process started."""

    boot_ms: int
    put_messages: int = 0
    get_messages: int = 0
