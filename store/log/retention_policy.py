"""Retention: up to which position the log may be forgotten. Arithmetic; the broker acts on it.

As in RocketMQ a segment goes as a whole, oldest first, when it is older than the reserved time
(``fileReservedTime``, 72 hours there) or when the disk is nearly full
(:mod:`store.io.disk_watermarks`); a bound on the log's total size is added. The segment being
written always stays, and the store itself keeps what recovery needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from store.io.disk_watermarks import DiskLevel, DiskSpace, DiskWatermarks

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """``None`` means unbounded."""

    age_ms_max: int | None = 72 * HOUR_MS
    log_bytes_max: int | None = None
    watermarks: DiskWatermarks = field(default_factory=DiskWatermarks)


class SegmentStats(NamedTuple):
    """A segment from position ``start`` to ``end`` (exclusive), and when its newest message came.

    ``newest_ms`` is ``None`` if the segment's age is not known; it then never expires by age.
    """

    start: int
    end: int
    newest_ms: int | None


def expiry_position(
    segments: Sequence[SegmentStats], policy: RetentionPolicy, *, now_ms: int
) -> int:
    """The position below which the log is older or larger than it may be.

    It is the start of the oldest segment to keep. ``segments`` are all of the log's, oldest first.
    """

    def due(segment: SegmentStats, log_bytes: int, _removed: int) -> bool:
        too_old = (
            policy.age_ms_max is not None
            and segment.newest_ms is not None
            and now_ms - segment.newest_ms > policy.age_ms_max
        )
        return too_old or (policy.log_bytes_max is not None and log_bytes > policy.log_bytes_max)

    return _keep_from(segments, due)


def forced_expiry_position(
    segments: Sequence[SegmentStats], watermarks: DiskWatermarks, space: DiskSpace
) -> int:
    """The position below which the log must go for the disk to come below its second watermark."""

    def due(_segment: SegmentStats, _log_bytes: int, removed: int) -> bool:
        return watermarks.level(DiskSpace(space.free + removed, space.total)) >= DiskLevel.FORCE

    return _keep_from(segments, due)


def _keep_from(
    segments: Sequence[SegmentStats], due: Callable[[SegmentStats, int, int], bool]
) -> int:
    """The start of the oldest segment that is not due, or of the newest.

    ``due`` is given the oldest segment, the bytes of the log from it on, and those before it.
    """
    if not segments:
        return 0
    begin, end = segments[0].start, segments[-1].end
    for segment in segments[:-1]:
        if not due(segment, end - segment.start, segment.start - begin):
            return segment.start
    return segments[-1].start
