"""Numbers of messages by topic and time, of bounded size."""

from __future__ import annotations

from dataclasses import dataclass, field

COUNTS_MAX = 1 << 10
"""Pace: the numbers that the result of a range has."""
TIMES_MIN = 2
"""Pace: so many spans of time remain, however many topics there are."""


@dataclass(slots=True)
class MessageCounts:
    """Numbers of messages by topic and store time.

    * ``most``: so many numbers are held, or for each topic :data:`TIMES_MIN` if that is more.
    * ``span``: minutes in which messages are counted together, a power of two. It doubles when the
      numbers are too many.
    * ``numbers``: messages by topic and the minute since 1970 at which the span begins.
    """

    most: int = COUNTS_MAX
    span: int = 1
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    _times: set[int] = field(default_factory=set)

    def add(self, topic: str, minute: int, messages: int) -> None:
        """Counts messages that were stored in a minute since 1970."""
        begin = minute - minute % self.span
        self._times.add(begin)
        key = topic, begin
        self.numbers[key] = self.numbers.get(key, 0) + messages
        while len(self.numbers) > self.most and len(self._times) > TIMES_MIN:
            self._widen(2 * self.span)

    def merge(self, other: MessageCounts) -> None:
        """Adds the numbers of another."""
        if other.span > self.span:
            self._widen(other.span)
        for (topic, minute), messages in other.numbers.items():
            self.add(topic, minute, messages)

    def totals(self) -> dict[str, int]:
        """Messages by topic."""
        found: dict[str, int] = {}
        for (topic, _), messages in self.numbers.items():
            found[topic] = found.get(topic, 0) + messages
        return found

    def _widen(self, span: int) -> None:
        finer = self.numbers
        self.span, self.numbers = span, {}
        self._times = {minute - minute % span for minute in self._times}
        for (topic, minute), messages in finer.items():
            key = topic, minute - minute % span
            self.numbers[key] = self.numbers.get(key, 0) + messages
