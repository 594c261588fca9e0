"""Which of the replicas is right: what more than half of those say that can say anything.

Copies of one node are one voice: they say what that node said once. Where they contradict each
other it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

Said = TypeVar("Said", bound=Hashable)


def majority(said: Sequence[tuple[Said, str]], *, at_least: int = 2) -> Said | None:
    """What more than half of the nodes say, if at least ``at_least`` do; ``None`` where there is
    no such. ``said`` are pairs of what was said and the name of the node."""
    voices: dict[str, set[Said]] = {}
    for value, node in said:
        voices.setdefault(node, set()).add(value)
    votes = Counter(value for values in voices.values() if len(values) == 1 for value in values)
    if not votes:
        return None
    (value, count), *_ = votes.most_common(1)
    return value if count >= at_least and 2 * count > len(voices) else None
