"""Where replicas differ: which of them are proved to be wrong, and which ones agree.

That more of them agree proves nothing, as two may have been changed alike. A replica is proved to
be wrong by what it says itself, where it contradicts itself: its log leads elsewhere than its own
mark, checkpoints or manifest say. Among those that do not, the finding says that they differ, and
names the side that has the majority, if there is one.

Copies of one node are one voice: they say what that node said once. Where they contradict each
other it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Sequence
from typing import TypeVar

Said = TypeVar("Said", bound=Hashable)
Speaker = TypeVar("Speaker", bound=Hashable)


def proved(said: Sequence[tuple[Said, Speaker]], contradicting: Container[Speaker]) -> Said | None:
    """What is right as all say it who do not contradict themselves, and some who do say otherwise;
    ``None`` where nobody can tell. ``said`` are pairs of what was said, and by whom."""
    voices = {value for value, speaker in said if speaker not in contradicting}
    return voices.pop() if len(voices) == 1 else None


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
