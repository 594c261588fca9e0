"""A stream reads each entry once, whichever snapshots are made and deleted beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark.datasource.data_source import Part, StreamReader
from spark.datasource.options import ReadOptions
from spark.datasource.snapshot_stream import furthest, stream_ends, stream_parts
from spark.datasource.snapshots import Snapshot
from spark.errors import ReplicaError
from store.state.snapshot_manifest import Manifest
from tests.spark.snapshots import write_snapshot

ALL = ReadOptions()


def snapshot(first: int, last: int, node: str = "n0") -> Snapshot:
    manifest = Manifest("broker-a", node, 1, first, last, 0, 0, 0)
    return Snapshot("", f"/{node}-{last}", manifest, 8192)


def planned(
    snapshots: list[Snapshot],
    start: dict[str, int],
    end: dict[str, int],
    options: ReadOptions = ALL,
) -> list[tuple[int, int, int]]:
    """By part, the last entry of its snapshot, and the first and the last entry to read."""
    parts = stream_parts(snapshots, options, start, end)
    return [(part.snapshot.manifest.commit_index, part.first, part.last) for part in parts]


def test_an_offset_does_not_move_back_if_the_newest_snapshot_is_deleted() -> None:
    monday, tuesday = snapshot(0, 9), snapshot(0, 13)
    both = furthest({}, stream_ends([monday, tuesday], ALL))
    assert both == {"broker-a/n0": 14}
    assert furthest(both, stream_ends([monday], ALL)) == both
    assert furthest(both, stream_ends([], ALL)) == both


def test_entries_that_expired_in_the_newest_snapshot_come_from_an_older_one() -> None:
    snapshots = [snapshot(0, 9), snapshot(5, 13), snapshot(12, 20)]
    end = {"broker-a/n0": 21}
    assert planned(snapshots, {}, end) == [(9, 0, 9), (13, 10, 13), (20, 14, 20)]
    assert planned(snapshots, {"broker-a/n0": 16}, end) == [(20, 16, 20)]


@pytest.mark.parametrize(
    ("left", "missing", "following"),
    [
        ([snapshot(12, 20)], "4 to 11", 12),  # they have expired
        ([snapshot(0, 9)], "10 to 20", 21),  # the snapshot with them is deleted
        ([], "4 to 20", 21),
    ],
)
def test_entries_that_no_snapshot_has_are_no_silent_gap(
    left: list[Snapshot], missing: str, following: int
) -> None:
    start, end = {"broker-a/n0": 4}, {"broker-a/n0": 21}
    others = [snapshot(0, 30, "n1")]
    with pytest.raises(ReplicaError, match=f"broker-a/n0: entries {missing} are in no snapshot"):
        planned([*others, *left], start, end)
    told = ReadOptions(from_index=following)
    assert planned([*others, *left], start, end, told) == (
        [(20, 12, 20)] if following == 12 else []
    )


def test_a_snapshot_that_is_being_made_or_deleted_is_left_out(tmp_path: Path) -> None:
    whole = write_snapshot(tmp_path / "monday", "n0", entries=10)
    made = write_snapshot(tmp_path / "tuesday", "n0", entries=14)
    (made / "manifest.json").unlink()
    deleted = write_snapshot(tmp_path / "sunday", "n0", entries=8)
    shutil.rmtree(deleted / "state")
    reader = StreamReader([str(tmp_path)], ALL)
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"broker-a/n0": 10}
    (part,) = reader.partitions({}, end)
    assert isinstance(part, Part)
    assert part.piece is not None
    assert (part.piece.snapshot.path, part.piece.first, part.piece.last) == (str(whole), 0, 9)


def test_a_stream_can_begin_before_the_first_snapshot(tmp_path: Path) -> None:
    reader = StreamReader([str(tmp_path)], ReadOptions(replicas=frozenset({"n0"})))
    assert reader.latestOffset({}, ReadAllAvailable()) == {}
    assert reader.partitions({}, {}) == []
    reader.prepareForTriggerAvailableNow()
    write_snapshot(tmp_path, "n0", entries=10)
    assert reader.latestOffset({}, ReadAllAvailable()) == {}  # it came behind the beginning
    later = StreamReader([str(tmp_path)], ALL)
    assert later.latestOffset({}, ReadAllAvailable()) == {"broker-a/n0": 10}


def test_a_damaged_snapshot_or_a_wrong_path_is_no_quiet_stream(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path, "n0", entries=10)
    (path / "manifest.json").write_text("{}")
    with pytest.raises(ReplicaError, match=r"manifest\.json"):
        StreamReader([str(tmp_path)], ALL).latestOffset({}, ReadAllAvailable())
    with pytest.raises(ReplicaError, match="no such directory"):
        StreamReader([f"{tmp_path}/none"], ALL).latestOffset({}, ReadAllAvailable())
