"""The deliveries of POP, replayed from the commands of the log, as in :mod:`.broker_state`.

It is written from docs/format.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Any

POP_SIZES = {
    "pop-receive": 9,
    "pop-wait": 6,
    "pop-ack": 5,
    "pop-change": 8,
    "pop-forget": 4,
}
"""By name of the command, the length of its array."""

RUN_MAX = 1 << 20
_PAIR = Struct(">qI")
_Key = tuple[str, str, int]


class PopTables:
    """Cursors and deliveries by group, topic and queue id, as the arrays of their encoding."""

    def __init__(self) -> None:
        self._time_ms = 0
        self._next: dict[_Key, int] = {}
        self._deliveries: dict[_Key, dict[int, list[int]]] = {}

    @classmethod
    def decode(cls, part: Sequence[Any]) -> PopTables:
        """The tables of the part ``pop`` of a state. Raises ``ValueError`` or ``TypeError``."""
        tables = cls()
        tables._time_ms, rows = part
        for group, topic, queue_id, next_offset, deliveries in rows:
            key = (group, topic, queue_id)
            tables._next[key] = next_offset
            tables._deliveries[key] = {each[0]: list(each[1:]) for each in deliveries}
        return tables

    def rows(self) -> list[Any]:
        """The part ``pop`` of a state; empty if POP was never used."""
        rows = [
            [*key, next_offset, [[at, *each] for at, each in self._deliveries[key].items()]]
            for key, next_offset in sorted(self._next.items())
        ]
        return [self._time_ms, rows] if rows or self._time_ms else []

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drops what belongs to a deleted group or topic."""
        for key in [key for key in self._next if group == key[0] or topic == key[1]]:
            self._forget(key)

    def commit(self, key: _Key, offset: int) -> int | None:
        """Applies an offset of a 4.x member. Returns the committed offset that results; ``None`` if
        the group has no cursor."""
        if key not in self._next:
            return None
        deliveries = self._deliveries[key]
        if offset > self._committed(key):
            for each in [each for each in deliveries if each < offset]:
                del deliveries[each]
            self._next[key] = max(self._next[key], offset)
        return self._committed(key)

    def apply(self, name: str, key: _Key, fields: Sequence[Any]) -> int | None:
        """Applies a command. Returns as :meth:`commit`. Raises :class:`ValueError` for a malformed
        one."""
        try:
            self._apply(name, key, fields)
        except error as fault:
            raise ValueError(f"{name}: {fault}") from fault
        return self._committed(key) if key in self._next else None

    def _apply(self, name: str, key: _Key, fields: Sequence[Any]) -> None:
        match name, [*fields]:
            case "pop-receive", [next_offset, runs, nonce, visible_ms, time_ms]:
                deliveries = self._advance(key, next_offset)
                for offset in _offsets(runs):
                    _visible, attempt, _nonce, group_hash = deliveries.get(offset, (0, 0, 0, 0))
                    deliveries[offset] = [visible_ms, attempt + 1, nonce, group_hash]
                self._time_ms = max(self._time_ms, time_ms)
            case "pop-wait", [next_offset, rows]:
                deliveries = self._advance(key, next_offset)
                for offset, group_hash in _PAIR.iter_unpack(rows):
                    deliveries.setdefault(offset, [0, 0, 0, group_hash])
            case "pop-ack", [runs]:
                for offset in _offsets(runs):
                    self._deliveries.get(key, {}).pop(offset, None)
            case "pop-change", [offset, nonce, visible_ms, time_ms]:
                known = self._deliveries.get(key, {}).get(offset)
                if known is not None:
                    known[0], known[2] = visible_ms, nonce
                self._time_ms = max(self._time_ms, time_ms)
            case "pop-forget", []:
                self._forget(key)
            case _:
                raise ValueError(f"no command of POP: {name}")

    def _advance(self, key: _Key, next_offset: int) -> dict[int, list[int]]:
        self._next[key] = max(self._next.get(key, next_offset), next_offset)
        return self._deliveries.setdefault(key, {})

    def _committed(self, key: _Key) -> int:
        return next(iter(self._deliveries[key]), self._next[key])

    def _forget(self, key: _Key) -> None:
        self._next.pop(key, None)
        self._deliveries.pop(key, None)


def _offsets(runs: bytes) -> list[int]:
    pairs = list(_PAIR.iter_unpack(runs))
    if any(count > RUN_MAX for _first, count in pairs):
        raise ValueError("a run has too many offsets")
    return [each for first, count in pairs for each in range(first, first + count)]
