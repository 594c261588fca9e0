"""Replicas in object stores: what needs no Spark, on fsspec's file system in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pyarrow.fs as arrowfs
import pytest

from spark import remote_file_system
from spark.audit import targets
from spark.audit.targets import find_targets
from spark.datasource.snapshots import find_snapshots
from spark.errors import ReplicaError
from spark.remote_file_system import RemoteFileSystem, open_file_system, open_one_file_system
from store.verify import Finding, verify_replicas
from tests.spark.snapshots import flip, write_group

URL = "memory://bucket/snapshots"


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Path]]:
    yield write_group(tmp_path)
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def upload(replicas: list[Path]) -> None:
    """As to an object store, which keeps no empty directories."""
    memory = fsspec.filesystem("memory")
    root = replicas[0].parents[1]
    for path in sorted(root.rglob("*")):
        if path.is_file():
            memory.pipe_file(f"/bucket/snapshots/{path.relative_to(root)}", path.read_bytes())


def findings_in_memory() -> list[Finding]:
    found = find_targets([URL])
    assert found == [f"{URL}/broker-a/{node}" for node in ("n0", "n1", "n2")]
    fs, _ = open_file_system(URL)
    return verify_replicas(fs, [open_file_system(one)[1] for one in found]).findings


def test_replicas_in_an_object_store_are_found_and_whole(replicas: list[Path]) -> None:
    upload(replicas)
    assert [one.name for one in find_snapshots([URL])] == [
        f"broker-a/{node}" for node in ("n0", "n1", "n2")
    ]
    assert findings_in_memory() == []


def test_a_tree_is_listed_at_once_as_directory_by_directory(replicas: list[Path]) -> None:
    upload(replicas)
    fs, path = open_file_system(URL)
    assert isinstance(fs, RemoteFileSystem)
    tree = fs.list_tree(f"{path}/broker-a/n0")
    assert f"{path}/broker-a/n0/consumequeue/bills/1" in tree
    for directory, names in tree.items():
        assert list(names) == fs.list_directory(directory)
    below = {f"{directory}/{name}" for directory, names in tree.items() for name in names}
    files = [path for path in replicas[0].rglob("*") if path.is_file()]
    assert len(below - tree.keys()) == len(files)


def test_damage_in_an_object_store_is_told_with_file_and_byte(replicas: list[Path]) -> None:
    flip(next(iter(sorted((replicas[1] / "consumequeue" / "orders" / "0").iterdir()))), 41)
    upload(replicas)
    (found,) = findings_in_memory()
    assert found.replica == "broker-a/n1"
    assert found.path == "/bucket/snapshots/broker-a/n1/consumequeue/orders/0/00000000000000000000"
    assert found.position == 40


def test_a_truncated_manifest_in_an_object_store_is_told_with_file_and_byte(
    replicas: list[Path],
) -> None:
    manifest = replicas[0] / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:40])
    upload(replicas)
    with pytest.raises(ReplicaError, match=r"broker-a/n0/manifest\.json, byte 0: not JSON"):
        find_snapshots([URL])


def test_what_a_url_says_behind_its_path_goes_with_each_replica(
    replicas: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``s3://bucket/path?endpoint_override=host:9000`` names a store that is not Amazon's."""
    upload(replicas)
    monkeypatch.setattr(targets, "open_file_system", lambda url: open_file_system(url[:-15]))
    assert find_targets([f"{URL}/broker-a/?region=eu-west"]) == [
        f"{URL}/broker-a/{node}?region=eu-west" for node in ("n0", "n1", "n2")
    ]


def test_pieces_that_follow_each_other_cost_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file_system, "READ_AHEAD", 100)
    data = bytes(range(250))
    asked: list[tuple[int, int]] = []

    class Store:
        def size(self) -> int:
            return len(data)

        def read_at(self, size: int, position: int) -> bytes:
            asked.append((size, position))
            return data[position : position + size]

        def close(self) -> None:
            pass

    file = remote_file_system.RemoteFile("x", Store())
    for position, size in ((0, 30), (30, 70), (60, 40), (100, 120), (210, 60), (250, 5), (70, 10)):
        buffer = bytearray(size)
        count = file.pread_into(memoryview(buffer), position)
        assert buffer[:count] == data[position : position + size]
    assert asked == [(100, 0), (120, 100), (100, 210), (100, 70)]


PATHS = ["bucket/snap", "bucket/snap/", "/bucket/snap", "bucket//snap", "//bucket/snap//"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("told", ["bucket/snap/", "/bucket/snap/", "bucket//snap/"])
def test_names_are_listed_however_a_store_writes_its_paths(path: str, told: str) -> None:
    class Store:
        type_name = "py::fsspec+nosuch"

        def get_file_info(self, selector: arrowfs.FileSelector) -> list[arrowfs.FileInfo]:
            assert not selector.recursive
            below = ["", "n0/", "README"]  # the first is how some stores keep an empty directory
            return [arrowfs.FileInfo(told + one, type=arrowfs.FileType.File) for one in below]

    assert remote_file_system.RemoteFileSystem(Store()).list_directory(path) == ["README", "n0"]


def test_a_store_that_begins_every_path_with_a_slash_is_listed(replicas: list[Path]) -> None:
    upload(replicas)
    fs, path = open_file_system(URL)
    assert fs.list_directory(path.lstrip("/")) == fs.list_directory(path) == ["broker-a"]


@pytest.mark.parametrize("path", PATHS)
def test_directories_that_are_only_in_names_are_listed_too(path: str) -> None:
    """Arrow leaves them out for Google's store, unless it is asked for all that is below."""
    below = ["bucket/snap/n0/commitlog/0", "bucket/snap/n0/index/0", "bucket/snap/README"]

    class Google:
        type_name = "gcs"

        def get_file_info(self, selector: arrowfs.FileSelector) -> list[SimpleNamespace]:
            assert selector.base_dir == path
            return [SimpleNamespace(path=one) for one in below if selector.recursive]

    assert remote_file_system.RemoteFileSystem(Google()).list_directory(path) == ["README", "n0"]


def test_of_a_scheme_that_arrow_knows_its_reason_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def from_uri(_uri: str) -> None:
        raise OSError("Unable to load libhdfs\ndlopen(libhdfs.so) failed")

    arrow = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri))
    monkeypatch.setattr(remote_file_system, "arrowfs", arrow)
    with pytest.raises(ReplicaError, match=r"^nosuch://x: this .* opened: Unable to load libhdfs$"):
        open_file_system("nosuch://x")


def test_a_scheme_that_nobody_knows_is_told(replicas: list[Path]) -> None:
    upload(replicas)
    with pytest.raises(ReplicaError, match=r"^nosuch://bucket: this cannot be opened: "):
        open_file_system("nosuch://bucket")


def test_equal_paths_of_two_stores_are_not_one_directory() -> None:
    place = "?scheme=http&region=eu-west-1&endpoint_override=127.0.0.1"
    here, there = (f"s3://key:secret@bucket/n0{place}:{port}" for port in (1, 2))
    other = here.replace("/n0", "/n1")
    assert open_one_file_system([here, other, here])[1] == ["bucket/n0", "bucket/n1", "bucket/n0"]
    for paths in ([here, there], [here, other, there], [here, "/n0"], [URL, here]):
        with pytest.raises(ReplicaError, match="lie on different file systems or stores"):
            open_one_file_system(paths)
