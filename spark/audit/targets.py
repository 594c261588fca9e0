"""Finds the replicas below the directories of a command line."""

from __future__ import annotations

from collections.abc import Sequence

from spark.errors import ReplicaError
from spark.remote_file_system import open_file_system
from store.errors import DataFormatError
from store.verify.plan.targets import find_replicas


def find_targets(directories: Sequence[str]) -> list[str]:
    """Each directory itself if it is a replica's; else the replicas in it and in its groups.

    Raises :class:`~spark.errors.ReplicaError` if there is no replica.
    """
    found: list[str] = []
    for directory in directories:
        fs, inner = open_file_system(directory)
        try:
            below = find_replicas(fs, inner)
        except DataFormatError as error:
            raise ReplicaError(str(error).replace(inner, directory, 1)) from error
        if "://" in directory:
            # The query behind the path says how to reach the store.
            outer, mark, query = directory.partition("?")
            found += [f"{outer.rstrip('/')}{path[len(inner) :]}{mark}{query}" for path in below]
        else:
            found += below
    return list(dict.fromkeys(found))
