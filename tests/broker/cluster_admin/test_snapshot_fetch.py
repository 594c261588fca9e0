"""A snapshot is moved from where its node has made it, as a whole or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from broker.cluster_admin.snapshot_fetch import NotHereError, fetch_snapshot
from store.state.snapshot_manifest import Manifest, encode_manifest

MANIFEST = Manifest("broker-a", "n0", 1, 0, 7, 4096, 99, 1_700_000_000_000)
ANSWER: Mapping[str, object] = {"replica": "broker-a/n0", **asdict(MANIFEST)}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    directory = tmp_path / "data/snapshots/1"
    (directory / "commitlog").mkdir(parents=True)
    (directory / "commitlog/0").write_bytes(b"log")
    (directory / "manifest.json").write_bytes(encode_manifest(MANIFEST))
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def other_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in a directory called data is on another file system."""
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if "data" in self.parts:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)


def test_it_is_moved(tmp_path: Path, made: Path) -> None:
    before = contents(made)
    fetch_snapshot(made, tmp_path / "out/broker-a/n0", ANSWER)
    assert contents(tmp_path / "out/broker-a/n0") == before
    assert not made.exists()


@pytest.mark.usefixtures("other_disk")
def test_it_is_copied_to_another_file_system(tmp_path: Path, made: Path) -> None:
    before = contents(made)
    fetch_snapshot(made, tmp_path / "out/broker-a/n0", ANSWER)
    assert contents(tmp_path / "out/broker-a/n0") == before
    assert [path.name for path in (tmp_path / "out/broker-a").iterdir()] == ["n0"]
    assert not made.exists()


@pytest.mark.usefixtures("other_disk")
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_copy_that_fails_leaves_it_where_it_was(
    tmp_path: Path, made: Path, fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_source: Path, target: Path) -> None:
        target.mkdir()
        (target / "part").write_bytes(b"half")
        raise fault

    monkeypatch.setattr(shutil, "copytree", fail)
    before = contents(made)
    with pytest.raises(type(fault)):
        fetch_snapshot(made, tmp_path / "out/broker-a/n0", ANSWER)
    assert contents(made) == before
    assert list((tmp_path / "out/broker-a").iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, made: Path) -> None:
    out = tmp_path / "out/broker-a/n0"
    out.mkdir(parents=True)
    (out / "mine").write_text("keep me")
    with pytest.raises(OSError, match="not empty"):
        fetch_snapshot(made, out, ANSWER)
    assert (out / "mine").read_text() == "keep me"
    assert made.exists()


@pytest.mark.parametrize(
    "other",
    [
        replace(MANIFEST, node="n1"),
        replace(MANIFEST, time_ms=MANIFEST.time_ms + 1),
        replace(MANIFEST, chain_crc=1),
        None,
    ],
)
def test_another_snapshot_of_that_name_is_left_alone(
    tmp_path: Path, made: Path, other: Manifest | None
) -> None:
    if other is None:
        (made / "manifest.json").unlink()
    else:
        (made / "manifest.json").write_bytes(encode_manifest(other))
    before = contents(made)
    with pytest.raises(NotHereError):
        fetch_snapshot(made, tmp_path / "out/broker-a/n0", ANSWER)
    assert contents(made) == before
    assert not (tmp_path / "out").exists()
