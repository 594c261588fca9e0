"""A log of very many segments keeps few of them open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

import store.log.commit_log
from store.io.atomic_file import TEMPORARY_SUFFIX
from store.io.os_filesystem import OsFile, OsFileSystem
from store.log.commit_log import CommitLog
from store.log.layout import segment_name
from store.replica import ReplicaStore, StoreConfig
from tests.store.small_logs import Writer, contents, data_of

SEGMENT_SIZE = 400
OPEN_MAX = 5


class Counting(OsFileSystem):
    """Counts the segment files of the log that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        file = super().open(path, create=create, writable=writable)
        self.most = max(self.most, open_segments())
        return file


def open_segments() -> int:
    """How many segment files this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found += "/commitlog/" in os.readlink(f"/proc/self/fd/{fd}")
    return found


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "index lost"])
def test_a_log_that_is_opened_again_keeps_few_segments_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    monkeypatch.setattr(store.log.commit_log, "OPEN_SEGMENTS_MAX", OPEN_MAX)
    config = StoreConfig("broker-a", "n0", SEGMENT_SIZE, min_free_bytes=0)
    writer = Writer(SEGMENT_SIZE)
    replica = ReplicaStore.open(OsFileSystem(), str(tmp_path), config)
    replica.save_hard_state(1, "n0")
    for _ in range(30):
        replica.append(writer.make_many(6))
        replica.sync()
    replica.save_checkpoint(writer.checkpoint(170))
    assert len(replica.segments()) > 6 * OPEN_MAX
    replica.close()
    if not indexed:
        for path in (tmp_path / "index").iterdir():
            path.unlink()
    fs = Counting()
    replica = ReplicaStore.open(fs, str(tmp_path), config)
    assert contents(replica) == data_of(writer.entries)
    replica.append(writer.make_many(20))
    replica.sync()
    replica.truncate(190)
    writer.cut(190)
    replica.append(writer.make_many(20))
    replica.sync()
    assert contents(replica) == data_of(writer.entries)
    assert fs.most <= OPEN_MAX + 2  # and the last one, which is written
    replica.close()
    assert open_segments() == 0


def test_a_segment_that_a_reader_opens_as_it_expires_is_no_trouble_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.log.commit_log, "OPEN_SEGMENTS_MAX", 2)
    log = CommitLog(OsFileSystem(), str(tmp_path), SEGMENT_SIZE, min_free_bytes=0)
    writer = Writer(SEGMENT_SIZE)
    for _ in range(9):
        log.append(writer.make_many(6))
        log.sync()
    oldest = log.segments[0]
    log.expire(SEGMENT_SIZE)
    file = OsFileSystem().open(log.segments[SEGMENT_SIZE].path)
    monkeypatch.setattr(oldest, "_file", file)  # the reader's, opened before the removal
    log._opened = {0: None, **log._opened}
    for start in list(log.segments):
        assert log.opened(start) is not None
    assert 0 not in log._opened
    log.close()


def test_a_segment_that_is_removed_while_it_is_open_gets_its_name_again(tmp_path: Path) -> None:
    config = StoreConfig("broker-a", "n0", SEGMENT_SIZE, min_free_bytes=0)
    writer = Writer(SEGMENT_SIZE)
    replica = ReplicaStore.open(OsFileSystem(), str(tmp_path), config)
    replica.save_hard_state(1, "n0")
    replica.append(writer.make_many(30))
    replica.sync()
    assert contents(replica) == data_of(writer.entries)
    assert replica.restore_removed() == []
    removed = tmp_path / "commitlog" / segment_name(SEGMENT_SIZE)
    before = removed.read_bytes()
    removed.unlink()
    told = replica.restore_removed()
    assert told == [f"{removed}: the segment file was removed, and is written again"]
    assert removed.read_bytes() == before
    assert contents(replica) == data_of(writer.entries)
    replica.close()
    assert sorted(path.suffix for path in removed.parent.iterdir())[-1] == ""


def test_a_part_of_a_segment_that_a_crash_left_is_removed_at_the_start(tmp_path: Path) -> None:
    config = StoreConfig("broker-a", "n0", SEGMENT_SIZE, min_free_bytes=0)
    ReplicaStore.open(OsFileSystem(), str(tmp_path), config).close()
    part = tmp_path / "commitlog" / f"{segment_name(SEGMENT_SIZE)}{TEMPORARY_SUFFIX}"
    part.write_bytes(b"part")
    ReplicaStore.open(OsFileSystem(), str(tmp_path), config).close()
    assert not part.exists()
