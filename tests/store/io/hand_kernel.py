"""A kernel that takes writes and ends them as a test says."""

from __future__ import annotations

import os

from store.io.async_io import AsyncWrites
from store.io.filesystem import BLOCK_SIZE


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now


class HandKernel:
    """The kernel's side: takes calls, lets time pass in them, and ends writes as it is told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.refuses = False
        self.holds = True
        self.call_seconds = 0.0
        self.write_seconds = 0.0
        self.result = BLOCK_SIZE
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._begun: list[int] = []

    def fileno(self) -> int:
        return self._event_fd

    def hold(self, _fd: int) -> bool:
        return self.holds

    def begin(self, slot: int, _fd: int, _address: int, _size: int, _position: int) -> bool:
        self.clock.now += self.call_seconds
        if not self.refuses:
            self._begun.append(slot)
        return not self.refuses

    def ended(self, *, wait: bool) -> list[tuple[int, int]]:
        self.clock.now += self.write_seconds
        slots, self._begun = self._begun, []
        return [(slot, self.result) for slot in slots]

    def close(self) -> None:
        os.close(self._event_fd)


def begun(writes: AsyncWrites, count: int) -> int:
    """How many of so many writes, one after the other, were begun; each has ended."""
    made = 0
    for _ in range(count):
        if writes.submit(0, 0, BLOCK_SIZE, 0, lambda _result: None):
            made += 1
            writes.completed()
    return made
