"""Decides which replica is right if replicas differ.

A replica is proved to be wrong if it contradicts itself: its own mark, checkpoints or manifest name
another log than it has. If the others agree, they are right. Otherwise the finding names the
majority, if there is one, but says of no replica that it is wrong: two replicas may have been
changed in the same way.

Copies of one node have one vote, and none if they differ from each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Sequence
from typing import TypeVar

Value = TypeVar("Value", bound=Hashable)
Speaker = TypeVar("Speaker", bound=Hashable)


def proved(
    said: Sequence[tuple[Value, Speaker]], contradicting: Container[Speaker]
) -> Value | None:
    """The value of all replicas that do not contradict themselves, if they agree.

    ``said``: pairs of value and replica.
    """
    voices = {value for value, speaker in said if speaker not in contradicting}
    return voices.pop() if len(voices) == 1 else None


def majority(said: Sequence[tuple[Value, str]], *, at_least: int = 2) -> Value | None:
    """The value of more than half of the nodes, and of at least ``at_least``, if there is one.

    ``said``: pairs of value and name of the node.
    """
    voices: dict[str, set[Value]] = {}
    for value, node in said:
        voices.setdefault(node, set()).add(value)
    votes = Counter(value for values in voices.values() if len(values) == 1 for value in values)
    if not votes:
        return None
    (value, count), *_ = votes.most_common(1)
    return value if count >= at_least and 2 * count > len(voices) else None


def right_value(
    said: Sequence[tuple[Value, Speaker, str]], contradicting: Container[Speaker]
) -> Value | None:
    """The value that is proved to be right; else that of the majority.

    ``said``: value, replica, and name of its node.
    """
    right = proved([(value, speaker) for value, speaker, _ in said], contradicting)
    if right is not None:
        return right
    others = [(value, node) for value, speaker, node in said if speaker not in contradicting]
    return majority(others)
