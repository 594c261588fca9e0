"""Tables lack no replica because its directory cannot be read."""

from __future__ import annotations

import errno
import os

import pytest

from simulator.engine.disk import SimulatedFileSystem
from spark.datasource.snapshots import DEPTH, walk
from spark.errors import ReplicaError
from tests.store.small_logs import simulated

NODES = ("/snap/n0", "/snap/n1", "/snap/n2")


class Refusing(SimulatedFileSystem):
    """A disk that cannot list some paths."""

    error = errno.EIO
    refused = ""

    def list_directory(self, path: str) -> list[str]:
        if path == self.refused:
            raise OSError(self.error, os.strerror(self.error), path)
        return super().list_directory(path)


@pytest.fixture
def fs() -> Refusing:
    found = Refusing(simulated().rng)
    for node in NODES:
        found.make_directories(node)
        found.open(f"{node}/manifest.json", create=True).close()
    found.open("/snap/README", create=True).close()
    return found


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_directory_that_cannot_be_listed_is_refused_by_name(fs: Refusing, error: int) -> None:
    assert walk(fs, "/snap", DEPTH) == list(NODES)
    fs.error, fs.refused = error, "/snap/n1"
    with pytest.raises(ReplicaError, match=rf"^/snap/n1: cannot be read: {os.strerror(error)}$"):
        walk(fs, "/snap", DEPTH)


def test_a_file_is_no_replica_however_a_store_refuses_to_list_it(fs: Refusing) -> None:
    fs.refused = "/snap/README"
    assert walk(fs, "/snap", DEPTH) == list(NODES)
