"""What cannot be read is a finding with its path and the reason, and the check goes on."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.cli.main import main
from simulator.engine.disk import SimulatedFileSystem
from store.index.key_file import PAGE_SIZE, ROW, describe
from store.io.filesystem import ReadableFile
from store.io.os_filesystem import OsFileSystem
from store.verify import Finding, FindingKind, verify_replicas
from store.verify.files.audit_files import AuditFiles
from store.verify.files.unread_files import EXIT_UNREAD, exit_code
from store.verify.index.key_file_check import wrong_rows
from tests.store.replica_directories import (
    edit_machine,
    make_dangling,
    make_loop,
    make_missing,
    make_pipe,
    write_format,
    write_replicas,
)
from tests.store.sample_replica import GROUP, write_replica
from tests.store.small_logs import simulated
from tests.support.search_effort import sample

NODES = ("n0", "n1", "n2")
NEWEST = "checkpoint-00000000000000000029"


class Denied(SimulatedFileSystem):
    """A disk of which one file cannot be opened, or be read from some byte on."""

    denied = ""
    reads_until: int | None = None

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> Any:
        if path == self.denied and self.reads_until is None:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        file = super().open(path, create=create, writable=writable)
        return _Rotten(file, self.reads_until or 0) if path == self.denied else file

    def list_directory(self, path: str) -> list[str]:
        if path == self.denied:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().list_directory(path)


class _Rotten:
    def __init__(self, file: ReadableFile, until: int) -> None:
        self._file = file
        self._until = until
        self.path = file.path

    def pread(self, size: int, position: int) -> bytes:
        if position + size > self._until:
            raise OSError(errno.EIO, "Input/output error", self.path)
        return self._file.pread(size, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


def denied() -> Denied:
    fs = Denied(simulated().rng)
    for node in NODES:
        write_replica(fs, node)
    return fs


def directories() -> list[str]:
    return [f"/data/{GROUP}/{node}" for node in NODES]


def names() -> list[str]:
    """Every file and directory of a replica but its lock."""
    fs = simulated()
    directory = write_replica(fs).directory
    found = set()
    for path in fs.files():
        parts = path.removeprefix(f"{directory}/").split("/")
        found |= {"/".join(parts[: end + 1]) for end in range(len(parts))}
    return sorted(found - {"lock"})


@pytest.mark.parametrize("name", sample(names()))
def test_what_may_not_be_read_is_told_with_the_reason_and_is_no_damage(name: str) -> None:
    fs = denied()
    fs.denied = f"/data/{GROUP}/n1/{name}"
    found = verify_replicas(fs, directories()).findings
    assert {each.replica for each in found} <= {f"{GROUP}/n1", f"/data/{GROUP}/n1"}
    told = [each for each in found if each.path == fs.denied]
    assert any("Permission denied" in each.found for each in told), found
    assert exit_code(found) == EXIT_UNREAD, "whatever else hangs on it"


def test_what_lies_before_a_bad_sector_is_checked() -> None:
    fs = denied()
    whole = verify_replicas(fs, directories()).replicas[1].messages
    fs.denied, fs.reads_until = f"/data/{GROUP}/n1/commitlog/{0:020d}", 4096
    found = verify_replicas(fs, directories()).findings
    assert {each.replica for each in found} == {f"{GROUP}/n1"}
    reasons = [each for each in found if "Input/output error" in each.found]
    assert [(each.path, each.position) for each in reasons] == [(fs.denied, 4096)]
    lost = [each.index_first for each in found if each.kind is FindingKind.ENTRY]
    first = min(index for index in lost if index is not None)
    assert first > 0
    assert verify_replicas(fs, directories()).replicas[1].messages > whole // 2


@pytest.mark.parametrize("end", [0, 7, PAGE_SIZE - 40, PAGE_SIZE, 2 * PAGE_SIZE + 9])
def test_rows_of_keys_that_cannot_be_read_are_missing_from_where_the_bytes_end(end: int) -> None:
    """At the beginning of their page, they would be told as wrong and not as unread."""
    rows = b"".join(ROW.pack(number, number, 1) for number in range(600))
    file = describe("/keys", rows)
    wrong = wrong_rows(file, rows[:end])
    assert wrong is not None
    assert wrong[0] == end
    assert wrong_rows(file, rows) is None
    flipped = bytes([rows[0] ^ 1]) + rows[1:end]
    assert end < PAGE_SIZE or (wrong_rows(file, flipped) or (-1,))[0] == 0


def test_a_pipe_is_refused_at_once_by_who_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Not a regular file"):
        OsFileSystem().open(str(tmp_path / "pipe"), writable=False)
    with pytest.raises(IsADirectoryError):
        OsFileSystem().open(str(tmp_path), writable=False)
    with pytest.raises(OSError, match=r"Not a regular file: '.*/pipe'"):
        OsFileSystem().open(str(tmp_path / "pipe"))


def test_a_read_behind_the_end_of_any_file_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    files = AuditFiles(OsFileSystem())
    assert files.open(str(tmp_path / "file")).pread(10, 1 << 70) == b""
    assert files.failures == {}


@pytest.fixture
def group(tmp_path: Path) -> Path:
    write_replicas(tmp_path)
    return tmp_path / GROUP


def test_the_command_names_what_it_cannot_read_and_goes_on(
    group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(group)]) == 0
    capsys.readouterr()
    make_pipe(group / "n0" / "commitlog" / f"{8192:020d}")
    make_loop(group / "n1" / "state" / "vote")
    make_dangling(group / "n2" / "index" / f"{0:020d}")
    assert main(["verify", str(group)]) == 1
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    for name, why in (
        ("n0/commitlog/00000000000000008192", "Not a regular file"),
        ("n1/state/vote", "Too many levels of symbolic links"),
        ("n2/index/00000000000000000000", "a link that leads nowhere"),
    ):
        assert any(f"{group}/{name}" in line and why in line for line in out.splitlines()), out


@pytest.mark.parametrize(
    "lines",
    [
        {"segment_size": "0"},
        {"segment_size": "x"},
        {"segment_size": "-1"},
        {"segment_size": "9" * 5000},
        {"incarnation": "zz"},
        {"incarnation": "1" * 20},
        {"group": "a/b"},
        {"node": ".."},
    ],
)
def test_a_format_file_of_nonsense_is_told_by_the_command(
    lines: dict[str, str], group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = group / "n1" / "state" / "format"
    write_format(path, lines)
    assert main(["verify", str(group)]) == 1
    told = capsys.readouterr().out.splitlines()
    findings = [line for line in told if ": format: " in line]
    assert len(findings) == 1
    assert str(path) in findings[0]
    # A replica that has no readable name is called by its directory.
    assert f"{group}/n1: no entry: 1 finding" in told


def test_a_replica_that_cannot_be_entered_is_told_and_not_passed_over(
    group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for alter in (make_dangling, make_loop):
        make_missing(group / "n1")
        alter(group / "n1")
        assert main(["verify", str(group)]) == 1
        assert f"{group}/n1" in capsys.readouterr().out


def test_a_replica_without_a_log_is_found_by_what_else_it_has(
    group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_missing(group / "n2" / "commitlog")
    assert main(["verify", str(group)]) == 1
    assert f"{group}/n2/commitlog" in capsys.readouterr().out


def told(group: Path, *names: str) -> list[Finding]:
    return verify_replicas(OsFileSystem(), [str(group / name) for name in names]).findings


def test_one_directory_under_two_names_is_one_replica(group: Path) -> None:
    (group / "again").symlink_to("n1")
    for first, other in (("n1", "again"), ("again", "n1")):
        checked = verify_replicas(OsFileSystem(), [str(group / first), str(group / other)])
        assert len(checked.replicas) == 1
        assert [each.found for each in checked.findings] == [
            f"{group / other} is the same directory"
        ]
    (group / "own").symlink_to("n0")  # which has a lock
    assert [each.kind for each in told(group, "n0", "own")] == [FindingKind.FORMAT]


def test_copies_of_one_node_do_not_outvote_another(group: Path) -> None:
    state = group / "n1" / "state" / NEWEST
    edit_machine(state, 1, b"another state of the broker")
    for name in ("copy", "other"):
        shutil.copytree(group / "n1", group / name)
    found = told(group, "n1", "copy", "other", "n2")
    copies = [(each.replica, each.path) for each in found if each.kind is FindingKind.FORMAT]
    assert copies == [(f"{GROUP}/n1", f"{group}/{name}/state/format") for name in ("copy", "other")]
    assert {each.replica for each in found} == {f"{GROUP}/n1"}
    assert str(state) in {each.path for each in found}


def test_segments_of_another_size_are_told(group: Path) -> None:
    write_format(group / "n1" / "state" / "format", {"segment_size": "16384"})
    sizes = [each for each in told(group, *NODES) if "segments of" in each.expected]
    assert [(each.replica, each.found) for each in sizes] == [
        (f"{GROUP}/n1", "segments of 16384 bytes")
    ]
    (unknown,) = [each for each in told(group, "n0", "n1") if "segments of" in each.expected]
    assert unknown.replica == "unknown"
