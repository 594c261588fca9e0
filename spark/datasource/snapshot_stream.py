"""What a stream over a directory of snapshots reads next.

Snapshots come and go. An offset of the stream has the next entry of each replica. So it says which
entries a batch has, whatever snapshots are there. A batch reads an entry from any snapshot that
holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spark.datasource.options import ReadOptions
from spark.datasource.snapshots import Snapshot
from spark.errors import ReplicaError


class StreamPart(NamedTuple):
    """Entries ``first`` to ``last``, and a snapshot that holds them all."""

    snapshot: Snapshot
    first: int
    last: int


def stream_ends(snapshots: Sequence[Snapshot], options: ReadOptions) -> dict[str, int]:
    """By replica, the entry behind the last that a snapshot holds and the options ask for."""
    ends: dict[str, int] = {}
    for one in snapshots:
        if options.wants(one.name):
            end = min(one.manifest.commit_index, options.to_index) + 1
            ends[one.name] = max(end, ends.get(one.name, 0))
    return ends


def furthest(start: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    """The offset ``start``, moved on to ``ends``. It never moves back: a newest snapshot may be
    deleted, and what was read is not read again."""
    names = sorted({*start, *ends})
    return {name: max(start.get(name, 0), ends.get(name, 0)) for name in names}


def stream_parts(
    snapshots: Sequence[Snapshot],
    options: ReadOptions,
    start: Mapping[str, int],
    end: Mapping[str, int],
) -> list[StreamPart]:
    """The entries from the offset ``start`` to before ``end``. Newer snapshots come first.

    A replica without a start begins with the first entry that a snapshot holds. Raises
    :class:`~spark.errors.ReplicaError` for entries that no snapshot holds.
    """
    parts: list[StreamPart] = []
    for name, stop in end.items():
        if not options.wants(name):
            continue
        ours = [one for one in snapshots if one.name == name]
        begin = min((one.manifest.first_index for one in ours), default=0)
        first = max(options.from_index, start.get(name, begin))
        while first < stop:
            holding = [
                one
                for one in ours
                if one.manifest.first_index <= first <= one.manifest.commit_index
            ]
            if not holding:
                raise _gap(name, first, stop, ours)
            newest = max(holding, key=lambda one: one.manifest.commit_index)
            last = min(newest.manifest.commit_index, stop - 1)
            parts.append(StreamPart(newest, first, last))
            first = last + 1
    return parts


def _gap(name: str, first: int, stop: int, ours: Sequence[Snapshot]) -> ReplicaError:
    later = [one.manifest.first_index for one in ours if one.manifest.first_index > first]
    following = min([stop, *later])
    return ReplicaError(
        f"{name}: entries {first} to {following - 1} are in no snapshot any more, and the stream "
        f"has not read them; option fromIndex={following} goes on without them"
    )
