"""The trace of a run: one event a line, and a hash over all of it.

The hash covers the time and the numbers of every event, every frame, every digest of a state and
the number of random draws. Two runs of one seed that differ anywhere, even in a draw without
visible effect, have different hashes. It covers no words: an event or a class may be renamed, and
the hashes of all seeds stay.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

LINES_MAX = 256
"""The number of lines that are hashed at once."""

WORDS = bytes(byte for byte in range(256) if not chr(byte).isdigit() and byte != ord("\n"))
"""The words of a line, without its numbers."""


class Trace:
    """Takes events, and passes each line to ``show`` if that is given.

    It also counts *marks*: situations that a run reached. A defence that no run ever needed has not
    been tested, however many seeds passed.
    """

    def __init__(self, clock: Callable[[], float], show: Callable[[str], None] | None) -> None:
        self._clock = clock
        self._show = show
        self._hash = blake2b(digest_size=16)
        self._fed = blake2b(digest_size=16)
        self._lines: list[str] = []
        self._time = -1.0
        self._stamp = ""
        self._columns: dict[str, str] = {}
        self.events = 0
        self.marks: dict[str, int] = {}

    def note(self, who: str, text: str, detail: object = None) -> None:
        """One event at the present time.

        ``detail`` is for readers and not part of the hash: its content must be fed to the hash in a
        cheaper form (:meth:`feed`).
        """
        time = self._clock()
        if time != self._time:
            self._time = time
            self._stamp = "%12.6f" % time  # noqa: UP031 - in half the time of an f-string
        column = self._columns.get(who)
        if column is None:
            column = self._columns[who] = f" {who:<4} "
        line = self._stamp + column + text
        self.events += 1
        lines = self._lines
        lines.append(line)
        if len(lines) >= LINES_MAX:
            self._take()
        if self._show is not None:
            self._show(line if detail is None else f"{line} {detail}")

    def feed(self, data: bytes) -> None:
        """Bytes of the last event that the hash has to cover."""
        self._fed.update(data)

    def _take(self) -> None:
        self._hash.update("\n".join(self._lines).encode().translate(None, WORDS))
        self._lines.clear()

    def coverage_mark(self, name: str) -> None:
        """Counts a situation that was reached."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def digest(self, draws: int) -> str:
        """The hash of everything so far."""
        self._take()
        final = self._hash.copy()
        final.update(f" {self._fed.hexdigest()} {self.events} {draws}".encode())
        return final.hexdigest()
