"""Limits of quotas."""

from __future__ import annotations

from typing import NamedTuple


class QuotaLimits(NamedTuple):
    """Limits of quotas, and of their memory."""

    quotas_max: int = 1_000
    """Quota settings in the replicated state, with unset ones that still have a name."""

    buckets_max: int = 10_000
    """Accounts, topics and clients whose use is tracked. Above that half are dropped: clients
    first, of these idle ones, then the oldest."""

    wait_seconds_max: float = 2.0
    """How long one answer is held back, and when a long poll in debt looks again: clients of
    RocketMQ wait for three seconds."""

    debt_seconds_max: float = 10.0
    """The largest debt, in seconds of a quota. Sends beyond it are refused, because an answer could
    not come in time. One-way requests wait for any time.
    """

    pause_seconds_max: float = 0.5
    """How long nothing is read from a client in debt that waits for an answer. Together with
    ``wait_seconds_max`` an answer comes before RocketMQ's clients give up."""


QUOTAS = QuotaLimits()
