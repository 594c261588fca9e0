"""Retention: up to which position the log may be forgotten. Arithmetic; the node acts on it.

As in RocketMQ a segment goes as a whole, oldest first, when it is older than the reserved time
(``fileReservedTime``, 72 hours there) or when the log takes more of the disk than it may
(``diskMaxUsedSpaceRatio``); a bound on the log's total size is added. The segment being written
always stays, and the store itself keeps what recovery needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """``None`` means unbounded.

    ``disk_share_max`` bounds the log's share of what it has and could still take, between 0 and 1:
    0.75 keeps a quarter of that free.
    """

    age_ms_max: int | None = 72 * HOUR_MS
    log_bytes_max: int | None = None
    disk_share_max: float | None = 0.75


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """A segment from position ``start`` to ``end`` (exclusive), and when its newest message came.

    ``newest_ms`` is ``None`` where the segment's age is not known; it then never expires by age.
    """

    start: int
    end: int
    newest_ms: int | None


def expiry_position(
    segments: Sequence[SegmentStats], policy: RetentionPolicy, *, now_ms: int, free_bytes: int
) -> int:
    """The position below which the log may go: the start of the oldest segment to keep.

    ``segments`` are all of the log's, oldest first; ``free_bytes`` is what the disk has left.
    """
    if not segments:
        return 0
    log_bytes = segments[-1].end - segments[0].start
    for segment in segments[:-1]:
        if not _is_due(segment, policy, now_ms, log_bytes, free_bytes):
            return segment.start
        size = segment.end - segment.start
        log_bytes -= size
        free_bytes += size
    return segments[-1].start


def _is_due(
    segment: SegmentStats,
    policy: RetentionPolicy,
    now_ms: int,
    log_bytes: int,
    free_bytes: int,
) -> bool:
    """Whether the oldest segment of a log must go, with so many bytes in the log and left over."""
    if (
        policy.age_ms_max is not None
        and segment.newest_ms is not None
        and now_ms - segment.newest_ms > policy.age_ms_max
    ):
        return True
    if policy.log_bytes_max is not None and log_bytes > policy.log_bytes_max:
        return True
    return policy.disk_share_max is not None and log_bytes > policy.disk_share_max * (
        log_bytes + free_bytes
    )
