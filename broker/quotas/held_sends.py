"""Sends of one wire whose answers are held back because their clients are beyond a quota.

They use the memory and requests that the wire has for all its clients. So they may use only a part
of it. Above that, a send of a client in debt is refused as busy before anything is stored, and
other clients are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from broker.limits import QUOTAS
from broker.quotas.quota import OverQuotaError


class HeldSends:
    """Counts the held sends of one wire."""

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        """A single request may be larger than ``bytes_max``."""
        self._requests = 0
        self._bytes = 0
        self._requests_max = requests_max
        self._bytes_max = bytes_max

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Counts a request of ``size`` bytes of a client in debt, until it is answered.

        Raises :class:`~broker.quotas.quota.OverQuotaError`.
        """
        if self._requests >= self._requests_max:
            raise _too_many(self._requests, self._requests_max, "sends")
        if self._requests and self._bytes + size > self._bytes_max:
            raise _too_many(self._bytes, self._bytes_max, "bytes of sends")
        self._requests += 1
        self._bytes += size
        try:
            yield
        finally:
            self._requests -= 1
            self._bytes -= size


def _too_many(waiting: int, limit: int, of_what: str) -> OverQuotaError:
    """All that wait now are answered after the longest wait of one."""
    seconds = ceil(QUOTAS.wait_seconds_max)
    return OverQuotaError(waiting, limit, f"{of_what} beyond a quota wait", seconds)
