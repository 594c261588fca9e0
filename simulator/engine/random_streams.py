"""Random numbers: one stream of draws for each random thing, all from one seed.

Streams are apart, so the delays of one link do not depend on another disk. A run without one of its
faults stays the same run up to the moment of that fault, and mostly behind it. Only so can a
schedule of faults be shortened step by step.
"""

from __future__ import annotations

import random

_draw = random.Random.random


class CountingRandom(random.Random):
    """A seeded generator that counts its draws."""

    def __init__(self, seed: int | str) -> None:
        self.draws = 0
        super().__init__(seed)

    def random(self) -> float:
        """See :class:`random.Random`."""
        self.draws += 1
        return _draw(self)

    def uniform(self, a: float, b: float) -> float:
        """See :class:`random.Random`; one draw."""
        self.draws += 1
        return a + (b - a) * _draw(self)

    def getrandbits(self, k: int, /) -> int:
        """See :class:`random.Random`."""
        self.draws += 1
        return super().getrandbits(k)


class Streams:
    """The streams of one run, made on first use."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, CountingRandom] = {}

    def stream(self, name: str) -> CountingRandom:
        """The stream of that name; the same seed and name give the same draws."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = CountingRandom(f"{self.seed}/{name}")
        return found

    @property
    def draws(self) -> int:
        """How many draws were made so far, of all streams."""
        return sum(stream.draws for stream in self._streams.values())
