"""Lists the names below a replica's directory once, for all tasks.

An object store lists a whole tree in one request. Without the listing, each task would need a
request for the directory of each queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol, TypeAlias, runtime_checkable

from store.io.filesystem import ReadableFileSystem
from store.verify.files.audit_files import AuditFiles, listed_names

Listing: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""By directory: the names in it, ``None`` if it is missing.

Directories that cannot be listed are left out: their next use reports why.
"""

LOG_DIRECTORIES = ("commitlog", "index", "keyindex")
QUEUES = "consumequeue"
DIRECTORIES = (*LOG_DIRECTORIES, QUEUES)


@runtime_checkable
class ListsTrees(Protocol):
    """A file system that lists all directories below one at once."""

    def list_tree(self, path: str) -> dict[str, tuple[str, ...]]:
        """The names in ``path`` and in each directory below it. Raises ``OSError``."""


def list_replica(files: AuditFiles, directory: str) -> dict[str, tuple[str, ...] | None]:
    """The listing of all directories that a check reads."""
    found: dict[str, tuple[str, ...] | None] = {}
    if isinstance(files.below, ListsTrees):
        with suppress(OSError, ValueError):
            tree = files.below.list_tree(directory)
            return {**{f"{directory}/{name}": None for name in DIRECTORIES}, **tree}
    for name in LOG_DIRECTORIES:
        _list(files, f"{directory}/{name}", found)
    queues = f"{directory}/{QUEUES}"
    for topic in _list(files, queues, found):
        for queue in _list(files, f"{queues}/{topic}", found):
            _list(files, f"{queues}/{topic}/{queue}", found)
    return found


def names_in(fs: ReadableFileSystem, directory: str, listing: Listing) -> frozenset[str]:
    """The names in a directory, by the listing if it has them; none if it cannot be listed."""
    if directory in listing:
        return frozenset(listing[directory] or ())
    return listed_names(fs, directory)


def without_queues(listing: Listing) -> dict[str, tuple[str, ...] | None]:
    """The part of a listing that the check of a range needs."""
    return {
        path: names
        for path, names in listing.items()
        if path.rpartition("/")[2] in LOG_DIRECTORIES and f"/{QUEUES}/" not in path
    }


def _list(
    files: AuditFiles, path: str, found: dict[str, tuple[str, ...] | None]
) -> tuple[str, ...]:
    failed_before = len(files.failures)
    names: tuple[str, ...] | None = None
    with suppress(FileNotFoundError):
        names = tuple(files.list_directory(path))
    if len(files.failures) == failed_before:
        found[path] = names
    return names or ()
