"""Finds the replicas below a directory that a user names."""

from __future__ import annotations

from store.errors import DataFormatError
from store.io.filesystem import ReadableFileSystem
from store.state.snapshot_manifest import MANIFEST_NAME
from store.verify.files.audit_files import reason
from store.verify.state.state_reader import is_replica

# DIR, DIR/<node> and DIR/<group>/<node>.
DEPTH = 2


def find_replicas(fs: ReadableFileSystem, directory: str) -> list[str]:
    """``directory`` itself if it is a replica's; else the replicas in it and in its groups.

    What can neither be listed nor opened counts as a replica, so that the check reports why. Raises
    :class:`~store.errors.DataFormatError` if there is no replica.
    """
    try:
        names = fs.list_directory(directory)
    except FileNotFoundError as error:
        raise DataFormatError(f"{directory}: there is no such directory") from error
    except NotADirectoryError as error:
        raise DataFormatError(f"{directory}: a file, not the directory of a replica") from error
    except (OSError, ValueError) as error:
        raise DataFormatError(f"{directory}: cannot be read: {reason(error)}") from error
    found = _search(fs, directory, names, DEPTH)
    if not found:
        raise DataFormatError(f"{directory} holds no replica: there is no commitlog in it")
    return found


def _search(fs: ReadableFileSystem, directory: str, names: list[str], depth: int) -> list[str]:
    if "commitlog" in names or MANIFEST_NAME in names or is_replica(fs, directory):
        return [directory]
    if depth == 0:
        return []
    found: list[str] = []
    for name in names:
        path = f"{directory.rstrip('/')}/{name}"
        try:
            inner = fs.list_directory(path)
        except NotADirectoryError:
            continue
        except (OSError, ValueError):
            if not opens_as_file(fs, path):
                found.append(path)
            continue
        found += _search(fs, path, inner, depth - 1)
    return found


def opens_as_file(fs: ReadableFileSystem, path: str) -> bool:
    """Whether what could not be listed is a file. The error does not say it: file systems and
    stores differ in how they refuse to list one."""
    try:
        fs.open(path, writable=False).close()
    except (OSError, ValueError):
        return False
    return True
