"""Moves a snapshot that a node of this machine has made."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from store.errors import StoreError
from store.io.os_filesystem import OsFileSystem
from store.state.snapshot_manifest import MANIFEST_NAME, decode_manifest


class NotHereError(Exception):
    """The snapshot is not on this machine."""


def fetch_snapshot(made: Path, wanted: Path, manifest: Mapping[str, object]) -> None:
    """Moves the snapshot with that manifest from ``made`` to ``wanted``, a new path.

    A copy to another file system appears there complete. Raises :class:`NotHereError`, and
    ``OSError`` if the snapshot cannot be moved; it stays where it was then.
    """
    require_here(made, manifest)
    fs = OsFileSystem()
    fs.make_directories(str(wanted.parent))
    try:
        made.rename(wanted)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = wanted.with_name(f"{wanted.name}.partial")
        try:
            shutil.copytree(made, copy)
            fs.sync_all(str(copy))
            copy.rename(wanted)
        except BaseException:  # Ctrl-C, too: a partial snapshot is removed
            shutil.rmtree(copy, ignore_errors=True)
            raise
        shutil.rmtree(made)
    fs.sync_directory(str(wanted.parent))


def require_here(made: Path, manifest: Mapping[str, object]) -> None:
    """Raises :class:`NotHereError` unless the snapshot with that manifest is in ``made``."""
    path = made / MANIFEST_NAME
    try:
        found = asdict(decode_manifest(path.read_bytes(), str(path)))
    except (FileNotFoundError, NotADirectoryError, StoreError) as error:
        raise NotHereError from error
    # Nodes of different machines may have directories of the same name.
    if found.items() - manifest.items():
        raise NotHereError
