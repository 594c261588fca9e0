"""A group that filters by tags gets the messages with the hash of one of them, and nothing else.

This check computes the hash of each tag by itself, as Java does. The number of a message says which
tag it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from simulator.engine.violation import Violation
from simulator.workload.history import Place, number_of
from simulator.workload.java_hash import java_hash
from store.message.record import MessageRecord


class OnlyTagged:
    """Looks at every record of an answer, before a client compares the tags themselves."""

    def __init__(self, wanted: Collection[str], tag_of: Callable[[int], str]) -> None:
        self._codes = frozenset(map(java_hash, wanted))
        self._tag_of = tag_of

    def given(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """An answer to a pull holds it."""
        tag = self._tag_of(number_of(record.body))
        if java_hash(tag) not in self._codes:
            raise Violation(f"{consumer} is given {place} with the tag {tag!r}, which it filters")
