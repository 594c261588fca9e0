"""Backups are incremental, resumable and whole; and they can be restored."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from broker.cli.backup.backup_index import BackupIndex, backup_name
from broker.cli.backup.backup_store import BackupStore
from broker.cli.command_line import run_command
from broker.command_error import CommandError, UsageError
from store.errors import DamagedError
from tests.store.replica_directories import write_replicas

PORTS = ("--namesrv-port", "0", "--port", "0", "--http-port", "0")


@pytest.fixture
def snapshots(tmp_path: Path) -> list[Path]:
    """Of two members of one group, with the same log."""
    _stopped, first, second = write_replicas(tmp_path / "replicas")
    return [first, second]


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/store"
    else:
        yield "memory://bucket/store"
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; returns its document."""

    def run(*arguments: str, code: int = 0) -> Any:
        found = run_command([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert found == code, err
        return json.loads(out) if code == 0 else err

    return run


def objects(url: str) -> dict[str, int]:
    fs, path = fsspec.core.url_to_fs(url)
    return {
        name.rpartition("/")[2]: info["size"]
        for name, info in fs.find(f"{path}/objects", detail=True).items()
    }


def test_a_backup_is_listed_and_restored(
    run: Any, url: str, snapshots: list[Path], tmp_path: Path
) -> None:
    made = run("backup", "create", url, "--snapshot", str(snapshots[0]))
    total = sum(path.stat().st_size for path in snapshots[0].rglob("*") if path.is_file())
    assert made["bytes"] == total
    listed = run("backup", "list", url)["backups"]
    assert [each["backup"] for each in listed] == [made["backup"]]
    assert listed[0]["replicas"] == made["replicas"]

    target = tmp_path / "target"
    done = run("restore", url, "--to", str(target), "--nodes", "3", *PORTS)
    assert [each["replica"] for each in done["replicas"]] == [f"broker-a/n{k}" for k in range(3)]
    assert run("verify", str(target))["consistent"] is True
    assert sorted(path.name for path in tmp_path.glob("target*")) == ["target"]


def test_a_restore_onto_a_link_fills_the_directory_behind_it(
    run: Any, snapshots: list[Path], tmp_path: Path
) -> None:
    disk = tmp_path / "disk/data"
    disk.mkdir(parents=True)
    link = tmp_path / "data"
    link.symlink_to(disk)
    run("restore", str(snapshots[0]), "--to", str(link), "--nodes", "1", *PORTS)
    assert link.is_symlink()
    assert (disk / "broker-a/n0/commitlog").is_dir()
    assert run("verify", str(link))["consistent"] is True
    assert sorted(path.name for path in disk.parent.iterdir()) == ["data"]


def test_of_several_groups_one_replica_each_is_enough(
    run: Any, url: str, snapshots: list[Path], tmp_path: Path
) -> None:
    write_replicas(tmp_path / "replicas", "broker-b")
    for each in tmp_path.glob("replicas/*/n[01]"):
        shutil.rmtree(each)
    made = run("backup", "create", url, "--snapshot", str(tmp_path / "replicas"))
    assert [each["group"] for each in made["replicas"]] == ["broker-a", "broker-b"]

    target = tmp_path / "target"
    done = run("restore", url, "--to", str(target), "--nodes", "2", *PORTS)
    assert [each["replica"] for each in done["replicas"]] == [
        f"broker-{group}/n{node}" for group in "ab" for node in range(2)
    ]
    assert run("verify", str(target))["consistent"] is True


def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_one(
    run: Any, url: str, snapshots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a prune would remove everything."""
    made = run("backup", "create", url, "--snapshot", str(snapshots[0]))
    fs = type(fsspec.core.url_to_fs(url)[0])
    whole, before = fs.ls, objects(url)

    def cut_off(self: Any, path: str, detail: bool = True, **options: Any) -> Any:
        if path.endswith("/backups"):
            raise OSError("the line is cut")
        return whole(self, path, detail=detail, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "ls", cut_off)
        for command in (("list", url), ("prune", url, "--keep", "1")):
            assert "the line is cut" in run("backup", *command, code=1)
    assert objects(url) == before
    assert [each["backup"] for each in run("backup", "list", url)["backups"]] == [made["backup"]]


def test_what_is_there_is_not_sent_again(run: Any, url: str, snapshots: list[Path]) -> None:
    first = run("backup", "create", url, "--snapshot", str(snapshots[0]))
    before = objects(url)
    again = run("backup", "create", url, "--snapshot", str(snapshots[0]))
    assert again["sent_bytes"] == 0
    assert again["bytes"] == first["bytes"]
    assert objects(url) == before
    # The other replica has the same log, and state files of its own.
    other = run("backup", "create", url, "--snapshot", str(snapshots[1]))
    own = {"manifest.json", "format", "vote", "mark"}
    sizes = [path.stat().st_size for path in snapshots[1].rglob("*") if path.name in own]
    assert 0 < other["sent_bytes"] <= sum(sizes)
    assert [each["backup"] for each in run("backup", "list", url)["backups"]] == [
        first["backup"], again["backup"], other["backup"],
    ]  # fmt: skip


def test_a_backup_that_was_cut_off_goes_on(
    run: Any, url: str, snapshots: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that was half sent is no backup."""
    fs = type(fsspec.core.url_to_fs(url)[0])
    whole = fs.put_file
    sent: list[str] = []

    def cut_off(self: Any, source: str, target: str, **options: Any) -> None:
        if len(sent) == 5:
            self.pipe_file(target, b"half")  # as a local file system leaves it
            raise OSError("the line is cut")
        sent.append(target)
        whole(self, source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "put_file", cut_off)
        why = run("backup", "create", url, "--snapshot", str(snapshots[0]), code=1)
    assert "the line is cut" in why
    assert run("backup", "list", url)["backups"] == []
    assert "holds no backup" in run("restore", url, "--to", str(tmp_path / "t"), code=1)

    done = run("backup", "create", url, "--snapshot", str(snapshots[0]))
    kept = sum(size for name, size in objects(url).items() if any(name in each for each in sent))
    assert 0 < done["sent_bytes"] <= done["bytes"] - kept


def test_a_restore_that_was_cut_off_fetches_the_rest(
    run: Any, url: str, snapshots: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("backup", "create", url, "--snapshot", str(snapshots[0]))
    fs = type(fsspec.core.url_to_fs(url)[0])
    whole = fs.get_file
    fetched: list[str] = []

    def limited(self: Any, source: str, target: str, **options: Any) -> None:
        if len(fetched) == 4:
            raise OSError("the line is cut")
        fetched.append(source)
        whole(self, source, target, **options)

    arguments = ("restore", url, "--to", str(tmp_path / "target"), "--nodes", "1", *PORTS)
    with monkeypatch.context() as patch:
        patch.setattr(fs, "get_file", limited)
        assert "the line is cut" in run(*arguments, code=1)
    assert not (tmp_path / "target").exists()
    first = [*fetched]

    def counted(self: Any, source: str, target: str, **options: Any) -> None:
        fetched.append(source)
        whole(self, source, target, **options)

    monkeypatch.setattr(fs, "get_file", counted)
    run(*arguments)
    assert not {*first} & {*fetched[len(first) :]}
    assert run("verify", str(tmp_path / "target"))["consistent"] is True


def test_damage_in_the_store_is_told_and_nothing_is_restored(
    run: Any, url: str, snapshots: list[Path], tmp_path: Path
) -> None:
    made = run("backup", "create", url, "--snapshot", str(snapshots[0]))
    fs, path = fsspec.core.url_to_fs(url)
    index = BackupStore(url).read(made["backup"])
    segment = next(f for f in index.replicas[0].files if f.name.startswith("commitlog/"))
    name = f"{path}/{segment.object_name}"
    data = bytearray(fs.cat_file(name))
    data[100] ^= 1
    fs.pipe_file(name, bytes(data))
    why = run("restore", url, "--to", str(tmp_path / "target"), code=1)
    assert f"{segment.object_name}: damaged" in why
    assert segment.name in why
    assert not (tmp_path / "target").exists()

    listing = f"{path}/backups/{made['backup']}.json"
    fs.pipe_file(listing, fs.cat_file(listing)[:-10])
    [listed] = run("backup", "list", url)["backups"]
    assert "not the index of a backup" in listed["error"]
    assert "name another one" in run("restore", url, "--to", str(tmp_path / "target"), code=1)
    assert "nothing is removed" in run("backup", "prune", url, "--keep", "1", code=1)


def test_pruning_keeps_what_the_newest_need(
    run: Any, url: str, snapshots: list[Path], tmp_path: Path
) -> None:
    made = [
        run("backup", "create", url, "--snapshot", str(snapshot))["backup"]
        for snapshot in (snapshots[0], snapshots[0], snapshots[1])
    ]
    before = objects(url)
    tried = run("backup", "prune", url, "--keep", "1", "--dry-run")
    assert tried["removed"] == made[:2]
    assert objects(url) == before
    done = run("backup", "prune", url, "--keep", "1")
    assert (done["removed"], done["kept"]) == (made[:2], made[2:])
    assert done["freed_bytes"] == sum(before.values()) - sum(objects(url).values()) > 0
    assert "there is no backup" in run(
        "restore", url, "--backup", made[0], "--to", str(tmp_path / "target"), code=1
    )
    run("restore", url, "--to", str(tmp_path / "target"), "--nodes", "1", *PORTS)


def test_what_cannot_be_listed_makes_no_backup(
    run: Any, url: str, snapshots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the backup would look whole without these files."""
    whole = os.scandir

    def unreadable(path: Any = ".") -> Any:
        if str(path).endswith("/consumequeue"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", unreadable)
    why = run("backup", "create", url, "--snapshot", str(snapshots[0]), code=1)
    assert f"{snapshots[0]}/consumequeue: Input/output error" in why
    assert objects(url) == {}
    monkeypatch.undo()
    run("backup", "create", url, "--snapshot", str(snapshots[0]))


def test_a_list_that_leads_elsewhere_is_refused() -> None:
    file = {"name": "state/vote", "size": 1, "sha256": "0" * 64}
    replica = {"group": "g", "node": "n0", "commit_index": 1, "time_ms": 1, "files": [file]}

    def decode(**changed: Any) -> BackupIndex:
        document = {"version": 1, "replicas": [{**replica, **changed}]}
        return BackupIndex.decode("b", json.dumps(document).encode(), "b.json")

    assert BackupIndex.decode("b", decode().encode(), "b.json") == decode()
    for changed in (
        {"group": ".."},
        {"node": "a/b"},
        {"files": [{**file, "name": "../vote"}]},
        {"files": [{**file, "name": "/etc/passwd"}]},
        {"files": [{**file, "sha256": "../../x".ljust(64, "0")}]},
        {"files": [{**file, "size": -1}]},
        {"files": 7},
    ):
        with pytest.raises(DamagedError):
            decode(**changed)
    for data in (b"", b"[]", b'{"version": 2, "replicas": []}'):
        with pytest.raises(DamagedError):
            BackupIndex.decode("b", data, "b.json")


def test_names_are_in_the_order_of_time() -> None:
    moments = [0, 999, 1000, 1_700_000_000_001, 1_700_000_000_010]
    names = [backup_name(each) for each in moments]
    assert names == sorted(names)
    assert names[3] == "20231114T221320001Z"


def test_wrong_urls_and_words_are_told(run: Any, snapshots: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        BackupStore("nosuch://x")
    with pytest.raises(CommandError):
        BackupStore(f"file://{tmp_path}").read("x")
    url = f"file://{tmp_path}/store"
    assert "one URL" in run("restore", url, str(tmp_path), "--to", "/t", code=2)
    assert "--backup" in run(
        "restore", str(snapshots[0]), "--backup", "x", "--to", str(tmp_path / "t"), code=2
    )
    why = run("backup", "create", url, "--snapshot", str(snapshots[0]), "--group", "other", code=2)
    assert "has no group other; it has broker-a" in why
    shutil.rmtree(snapshots[0])
    assert "no such directory" in run(
        "backup", "create", url, "--snapshot", str(snapshots[0]), code=2
    )
