"""What the benchmark measures on is three whole and equal replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.bench.messages import Messages
from spark.bench.snapshot_data import write_snapshots
from store.io.os_filesystem import OsFileSystem
from store.verify import verify_replicas


@pytest.mark.parametrize("messages", Messages)
def test_the_data_of_the_benchmark_are_whole_and_of_the_size_asked_for(
    messages: Messages, tmp_path: Path
) -> None:
    replicas = write_snapshots(str(tmp_path), 300_000, 1024, messages=messages)
    verification = verify_replicas(OsFileSystem(), replicas)
    assert verification.findings == []
    assert [report.name for report in verification.replicas] == [
        "broker-a/n0",
        "broker-a/n1",
        "broker-a/n2",
    ]
    assert all(report.end_position >= 300_000 for report in verification.replicas)
