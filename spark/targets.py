"""Which replicas are meant by the directories of a command line."""

from __future__ import annotations

from collections.abc import Sequence

from spark.errors import ReplicaError
from spark.filesystems import open_file_system
from spark.replicas import is_file
from store.filesystem import FileSystem

# DIR, DIR/<node> and DIR/<group>/<node>.
DEPTH = 2


def find_targets(directories: Sequence[str]) -> list[str]:
    """Each directory itself if it is a replica's, else the replicas in it and in its groups.

    Raises :class:`~spark.errors.ReplicaError` where there is none.
    """
    found: list[str] = []
    for directory in directories:
        fs, inner = open_file_system(directory)
        if not fs.exists(inner):
            raise ReplicaError(f"{directory}: there is no such directory")
        if is_file(fs, inner):
            raise ReplicaError(f"{directory}: a file, not the directory of a replica")
        below = search(fs, inner, DEPTH)
        if not below:
            raise ReplicaError(f"{directory} holds no replica: there is no commitlog in it")
        if "://" in directory:
            # What follows the path says how to reach the store: where it is, for one.
            outer, mark, query = directory.partition("?")
            found += [f"{outer.rstrip('/')}{path[len(inner) :]}{mark}{query}" for path in below]
        else:
            found += below
    return list(dict.fromkeys(found))


def search(fs: FileSystem, path: str, depth: int) -> list[str]:
    names = fs.list_directory(path)
    if "commitlog" in names or "manifest.json" in names:
        return [path]
    if depth == 0:
        return []
    inner = [f"{path.rstrip('/')}/{name}" for name in names]
    return [
        replica for one in inner if not is_file(fs, one) for replica in search(fs, one, depth - 1)
    ]
