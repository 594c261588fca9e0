"""The size of a task, where nobody says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.audit.task_size import RANGE_BYTES_MIN, count_cores, log_bytes, range_bytes_for
from store.io.os_filesystem import OsFileSystem

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("log", "cores", "expected"),
    [
        (16 * GIB, 2, GIB),
        (17 * GIB, 2, -(-17 * GIB // 18)),
        (GIB, 2, 512 * MIB),
        (GIB, 16, 64 * MIB),
        (100 * MIB, 2, RANGE_BYTES_MIN),
        (0, 2, RANGE_BYTES_MIN),
    ],
)
def test_each_core_gets_equally_many_ranges_none_of_them_tiny(
    log: int, cores: int, expected: int
) -> None:
    assert range_bytes_for(log, cores) == expected


def test_the_longest_log_counts_from_its_first_segment(tmp_path: Path) -> None:
    for node, starts in (("n0", ()), ("n1", (200, 300)), ("n2", (100, 200, 300))):
        (tmp_path / node / "commitlog").mkdir(parents=True)
        for start in starts:
            (tmp_path / node / "commitlog" / f"{start:020d}").write_bytes(b"x" * 30)
    (tmp_path / "n2" / "commitlog" / "other").write_bytes(b"x")
    assert log_bytes(OsFileSystem(), [f"{tmp_path}/n{number}" for number in (0, 1, 2, 3)]) == 230


def test_the_tasks_of_a_local_session_are_its_threads(session: SparkSession) -> None:
    assert count_cores(session) == session.sparkContext.defaultParallelism > 1
