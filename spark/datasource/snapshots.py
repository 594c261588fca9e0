"""Finds the snapshots below a path. Their entries up to the commit index of the manifest count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark.errors import ReplicaError
from spark.remote_file_system import open_file_system
from store.errors import DamagedError, DataFormatError
from store.io.filesystem import FileSystem
from store.state.format_file import FORMAT_NAME
from store.state.snapshot_manifest import MANIFEST_NAME, Manifest, decode_manifest
from store.verify.files.audit_files import reason
from store.verify.files.small_files import read_small
from store.verify.plan.targets import opens_as_file
from store.verify.state.state_reader import read_identity

# DIR, DIR/<node>, DIR/<group>/<node> and DIR/<snapshot>/<group>/<node>.
DEPTH = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of one replica. ``path`` is a path in the file system of ``root``."""

    root: str
    path: str
    manifest: Manifest
    segment_size: int

    @property
    def name(self) -> str:
        """``group/node``."""
        return f"{self.manifest.group}/{self.manifest.node}"

    def open(self) -> FileSystem:
        return open_file_system(self.root)[0]


def split_paths(options: Mapping[str, str]) -> list[str]:
    """The paths given to ``load``: one, or the list that Spark passes as JSON."""
    if "paths" in options:
        return [str(path) for path in json.loads(options["paths"])]
    if options.get("path"):
        return [options["path"]]
    raise ReplicaError("no path: call load(path) with the directory of a snapshot")


def find_snapshots(roots: list[str]) -> list[Snapshot]:
    """The newest snapshot of each replica below the paths, in the order of the replicas' names.

    Raises :class:`~spark.errors.ReplicaError` if there is no snapshot, or an incomplete one.
    """
    newest: dict[str, Snapshot] = {}
    for root in roots:
        fs, inner = open_file_system(root)
        found = [read_snapshot(fs, root, path) for path in walk(fs, inner, DEPTH)]
        if not found:
            raise ReplicaError(f"{root}: no replica here: there is no {MANIFEST_NAME} in it")
        for snapshot in found:
            known = newest.get(snapshot.name)
            if known is None or known.manifest.commit_index < snapshot.manifest.commit_index:
                newest[snapshot.name] = snapshot
    return [newest[name] for name in sorted(newest)]


def whole_snapshots(roots: list[str]) -> list[Snapshot]:
    """All whole snapshots below the paths. Snapshots may be made and deleted at the same time.

    Raises :class:`~spark.errors.ReplicaError` if a path is no directory, or a snapshot is damaged.
    """
    found: list[Snapshot] = []
    for root in roots:
        fs, inner = open_file_system(root)
        for path in walk(fs, inner, DEPTH, changing=True):
            try:
                found.append(read_snapshot(fs, root, path))
            except ReplicaError:
                # The files of one that is being deleted go in any order.
                needed = (MANIFEST_NAME, f"state/{FORMAT_NAME}")
                if all(fs.exists(f"{path}/{name}") for name in needed):
                    raise
    return found


def walk(fs: FileSystem, path: str, depth: int, *, changing: bool = False) -> list[str]:
    """Directories of replicas at ``path`` or below.

    ``changing``: snapshots are made and deleted meanwhile. Those without a manifest are left out.
    Otherwise raises :class:`~spark.errors.ReplicaError` for a replica that is no snapshot. Raises
    it always for what can neither be listed nor opened: it may be a replica, which the tables would
    lack.
    """
    if not fs.exists(path):
        raise ReplicaError(f"{path}: no such directory")
    try:
        names = fs.list_directory(path)
    except NotADirectoryError as error:
        raise ReplicaError(f"{path}: a file, not the directory of a snapshot") from error
    if MANIFEST_NAME in names:
        return [path]
    if "commitlog" in names:
        if changing:
            return []
        raise ReplicaError(
            f"{path}/{MANIFEST_NAME}: missing: this is no snapshot (dledger snapshot makes one)"
        )
    if depth == 0:
        return []
    below: list[str] = []
    for name in names:
        inner = f"{path.rstrip('/')}/{name}"
        try:
            if not is_file(fs, inner):
                below += walk(fs, inner, depth - 1, changing=changing)
        except (ReplicaError, FileNotFoundError):
            if not changing or fs.exists(inner):
                raise
    return below


def is_file(fs: FileSystem, path: str) -> bool:
    try:
        fs.list_directory(path)
    except NotADirectoryError:
        return True
    except OSError as error:
        if opens_as_file(fs, path):
            return True
        raise ReplicaError(f"{path}: cannot be read: {reason(error)}") from error
    return False


def read_snapshot(fs: FileSystem, root: str, path: str) -> Snapshot:
    """The snapshot at a path.

    Raises :class:`~spark.errors.ReplicaError` with file and byte if it is damaged.
    """
    name = f"{path}/{MANIFEST_NAME}"
    try:
        manifest = decode_manifest(read_small(fs, name), name)
        identity = read_identity(fs, path)
    except (DamagedError, DataFormatError, OSError) as error:
        raise ReplicaError(str(error)) from error
    return Snapshot(root, path, manifest, identity.segment_size)
