"""How full a disk is."""

from __future__ import annotations

import pytest

from store.io.disk_watermarks import DiskLevel, DiskSpace, DiskWatermarks


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (251, DiskLevel.ROOM),
        (250, DiskLevel.CLEAN),
        (151, DiskLevel.CLEAN),
        (150, DiskLevel.FORCE),
        (101, DiskLevel.FORCE),
        (100, DiskLevel.FULL),
        (0, DiskLevel.FULL),
    ],
)
def test_the_watermarks_are_those_of_rocketmq(free: int, level: DiskLevel) -> None:
    assert DiskWatermarks().level(DiskSpace(free, 1000)) is level


def test_a_disk_with_enough_bytes_free_is_not_full_whatever_the_share() -> None:
    marks = DiskWatermarks(enough_bytes=50)
    assert marks.level(DiskSpace(50, 1000)) is DiskLevel.ROOM
    assert marks.level(DiskSpace(49, 1000)) is DiskLevel.FULL


def test_a_file_system_without_size_is_full() -> None:
    assert DiskWatermarks().level(DiskSpace(0, 0)) is DiskLevel.FULL


@pytest.mark.parametrize("shares", [(0, 85, 90), (86, 85, 90), (75, 91, 90), (75, 85, 101)])
def test_watermarks_that_do_not_rise_are_refused(shares: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        DiskWatermarks(*shares)
