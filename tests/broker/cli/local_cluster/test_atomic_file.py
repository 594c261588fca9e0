"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.cli.local_cluster.atomic_file import write_atomically


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text("before")

    write_atomically(path, "after")

    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pid"
    path.write_text("before")

    def run_full(new: Path, _text: str, encoding: str) -> None:
        new.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", run_full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/pid'"):
        write_atomically(path, "after")

    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
