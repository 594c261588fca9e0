"""``GET /metrics``: readings in Prometheus' text format.

The client library is loaded with the first request: a start does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from broker.prometheus.metric import Reading

if TYPE_CHECKING:
    from broker.prometheus.text_format import TextFormat

FORMAT = "broker.prometheus.text_format"
"""Loaded by name, in a thread: the event loop waits for no file."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The version of the format that every Prometheus reads. Later versions have the same content."""

PAGE_SECONDS = 1.0
"""The lifetime of a page: requests in that time get the same one."""

SAMPLES_PER_TURN = 200
"""Samples that are written in one turn of the event loop: a few milliseconds of work."""

_HEADER_LINES = 2

CONTENT_TYPE_HEADER = {"Content-Type": CONTENT_TYPE}


class TextPage:
    """The page of one process. Concurrent requests, and those a moment later, get the same page."""

    def __init__(
        self,
        read: Callable[[], AsyncIterable[Reading]],
        labels: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        """``labels`` are added to each sample; ``clock`` gives seconds of a monotonic clock."""
        self._read = read
        self._labels = labels
        self._clock = clock
        self._format: TextFormat | None = None
        self._page = b""
        self._made_at = float("-inf")
        self._making = asyncio.Lock()

    async def text(self) -> bytes:
        """The page, at most :data:`PAGE_SECONDS` old."""
        async with self._making:
            if self._clock() - self._made_at >= PAGE_SECONDS:
                self._page = await self._make(self._format or await self._load())
                self._made_at = self._clock()
            return self._page

    async def _load(self) -> TextFormat:
        module = await asyncio.to_thread(import_module, FORMAT)
        loaded: TextFormat = module.TextFormat(tuple(self._labels), tuple(self._labels.values()))
        self._format = loaded
        return loaded

    async def _make(self, text_format: TextFormat) -> bytes:
        """Writes the samples in several turns of the event loop."""
        parts = [text_format.process()]
        async for metric, samples in self._read():
            for start in range(0, len(samples) + 1, SAMPLES_PER_TURN):
                some = Reading(metric, samples[start : start + SAMPLES_PER_TURN])
                text = text_format.text(some)
                # Only the first samples have help and type before them.
                parts.append(text.split(b"\n", _HEADER_LINES)[-1] if start else text)
                await asyncio.sleep(0)
        return b"".join(parts)
