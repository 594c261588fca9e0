"""0 for consistent, 1 for findings, 2 where nothing was found and something could not be read."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.cli.main import main
from store.errors import UnreadableError
from store.io.os_filesystem import OsFileSystem
from store.verify import Finding, FindingKind, verify_replicas
from store.verify.files.unread_files import EXIT_CONSISTENT, EXIT_FOUND, EXIT_UNREAD, exit_code
from store.verify.state.state_reader import read_identity
from tests.store.replica_directories import NODES, write_format, write_replicas
from tests.store.sample_replica import GROUP
from tests.store.verify.files.test_unreadable_files import Denied, denied, directories

DENIED = "broker-a/n1"


@pytest.fixture
def group(tmp_path: Path) -> Path:
    write_replicas(tmp_path)
    return tmp_path / GROUP


def found(fs: Denied) -> list[Finding]:
    return verify_replicas(fs, directories()).findings


def test_damage_before_a_bad_sector_is_found_and_what_lies_behind_is_not() -> None:
    fs = denied()
    fs.denied, fs.reads_until = f"/data/{GROUP}/n1/commitlog/{0:020d}", 4096
    assert exit_code(found(fs)) == EXIT_UNREAD
    fs.flip_bit(fs.denied, 300)
    told = found(fs)
    assert exit_code(told) == EXIT_FOUND
    assert [each.kind for each in told if not each.unread] == [FindingKind.ENTRY]


def test_damage_of_another_replica_is_found_beside_what_cannot_be_read() -> None:
    fs = denied()
    assert exit_code(found(fs)) == EXIT_CONSISTENT
    fs.denied = f"/data/{GROUP}/n1/state/vote"
    fs.flip_bit(f"/data/{GROUP}/n2/state/vote", 10)
    told = found(fs)
    assert exit_code(told) == EXIT_FOUND
    assert {each.replica for each in told if not each.unread} == {f"{GROUP}/n2"}


def refuse(path: str) -> Callable[..., Any]:
    """``OsFileSystem.open`` of somebody who may not read one file."""
    opened = OsFileSystem.open

    def open_others(self: OsFileSystem, name: str, **options: bool) -> Any:
        if name == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(self, name, **options)

    return open_others


def test_the_command_ends_with_2_for_what_it_may_not_read_alone(
    group: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(group)]) == EXIT_CONSISTENT
    path = group / "n1" / "state" / "mark"
    monkeypatch.setattr(OsFileSystem, "open", refuse(str(path)))
    assert main(["verify", str(group)]) == EXIT_UNREAD
    assert f"{path}, byte 0: " in capsys.readouterr().out
    (group / "n2" / "state" / "vote").unlink()
    assert main(["verify", str(group)]) == EXIT_FOUND


def test_the_command_ends_with_2_for_data_that_is_in_use(
    group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = OsFileSystem().lock(str(group / "n0" / "lock"))
    assert main(["verify", str(group)]) == EXIT_UNREAD
    assert "a running node has this data open" in capsys.readouterr().err
    held.release()


@pytest.mark.parametrize("where", ["none", "empty"])
def test_the_command_ends_with_2_for_what_is_no_replica(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["verify", str(tmp_path / where)]) == EXIT_UNREAD
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_data_of_a_format_to_come_could_not_be_read_and_the_others_are_checked(
    group: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = group / "n1" / "state" / "format"
    right = path.read_bytes()
    path.write_bytes(b"dledger data format 3\nwhatever comes\n")
    with pytest.raises(UnreadableError, match="format 3"):
        read_identity(OsFileSystem(), str(group / "n1"))
    assert main(["verify", str(group)]) == EXIT_UNREAD
    assert f"{GROUP}/n2: entries 0 to 29" in capsys.readouterr().out
    # One digit that rotted: with the right one the CRC fits.
    path.write_bytes(right.replace(b"format 2", b"format 3", 1))
    assert main(["verify", str(group)]) == EXIT_FOUND


def test_help_says_what_the_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "exit code: 0 consistent; 1 something is wrong; 2 nothing" in said


# --- links to the files of another replica


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "state"])
def test_a_directory_that_two_replicas_share_is_told(part: str, group: Path) -> None:
    path = group / "n1" / part
    shutil.rmtree(path)
    path.symlink_to(group / "n2" / part)
    told = verify_replicas(OsFileSystem(), [str(group / node) for node in NODES]).findings
    shared = [each for each in told if each.found == f"the same directory as {path}"]
    assert [(each.replica, each.path) for each in shared] == [("unknown", str(group / "n2" / part))]
    assert not any(each.path.startswith(str(group / "n0")) for each in told)


def test_a_directory_elsewhere_that_is_a_replicas_own_is_none(group: Path, tmp_path: Path) -> None:
    """A log on another disk."""
    shutil.move(group / "n1" / "commitlog", tmp_path / "log")
    (group / "n1" / "commitlog").symlink_to(tmp_path / "log")
    assert verify_replicas(OsFileSystem(), [str(group / node) for node in NODES]).findings == []


def test_a_file_of_another_replica_by_a_hard_link_is_told(group: Path) -> None:
    path = group / "n1" / "state" / "vote"
    path.unlink()
    path.hardlink_to(group / "n2" / "state" / "vote")
    told = verify_replicas(OsFileSystem(), [str(group / node) for node in NODES]).findings
    assert {(each.replica, each.path) for each in told} == {(DENIED, str(path))}


def test_one_line_that_was_changed_in_a_format_file_is_told_by_its_byte(group: Path) -> None:
    path = group / "n1" / "state" / "format"
    write_format(path, {"more": "1"})
    told = verify_replicas(OsFileSystem(), [str(group / node) for node in NODES]).findings
    assert {(each.replica, each.path) for each in told} == {(DENIED, str(path))}
    assert path.read_bytes()[told[0].position :].startswith(b"more")
