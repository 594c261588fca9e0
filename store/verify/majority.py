"""Who is right if replicas differ.

A replica is proved to be wrong if it contradicts itself: its own mark, checkpoints or manifest name
another log than it has. If the others agree, they are right. Otherwise the finding names the side
of the majority, if there is one, and accuses nobody: two replicas may have been changed alike.

Copies of one node have one voice, and none if they contradict each other.
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
    """The value of all who do not contradict themselves, if they agree.

    ``said`` are pairs of value and speaker.
    """
    voices = {value for value, speaker in said if speaker not in contradicting}
    return voices.pop() if len(voices) == 1 else None


def majority(said: Sequence[tuple[Value, str]], *, at_least: int = 2) -> Value | None:
    """The value of more than half of the nodes, and of at least ``at_least``, if there is one.

    ``said`` are pairs of value and name of the node.
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
    """What is proved to be right, else what the majority says.

    ``said`` are value, speaker, and name of the speaker's node.
    """
    right = proved([(value, speaker) for value, speaker, _ in said], contradicting)
    if right is not None:
        return right
    others = [(value, node) for value, speaker, node in said if speaker not in contradicting]
    return majority(others)
