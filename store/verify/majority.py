"""Which of the replicas is right: what more than half of those say that can say anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

Said = TypeVar("Said", bound=Hashable)


def majority(said: Sequence[Said], *, at_least: int = 2) -> Said | None:
    """What more than half say, if at least ``at_least`` do; ``None`` where there is no such."""
    if not said:
        return None
    value, votes = Counter(said).most_common(1)[0]
    return value if votes >= at_least and 2 * votes > len(said) else None
