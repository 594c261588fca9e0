"""A directory that cannot be read is a replica that the check must tell of, and no file."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.verify import verify_replicas
from store.verify.files.unread_files import EXIT_UNREAD, exit_code
from store.verify.plan.targets import find_replicas
from tests.store.replica_directories import NODES
from tests.store.sample_replica import GROUP, write_replica
from tests.store.small_logs import simulated

ERRORS = (errno.EIO, errno.ESTALE, errno.EACCES)
REFUSED = f"/data/{GROUP}/n1"


class Refusing(SimulatedFileSystem):
    """A disk that refuses the directory of one replica and all below."""

    error = errno.EIO
    refused = ""
    plain_errors = False
    """As some object stores do, which list a file with an error that says nothing."""

    def _refuse(self, path: str) -> None:
        if self.refused and f"{path}/".startswith(f"{self.refused}/"):
            raise OSError(self.error, os.strerror(self.error), path)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> Any:
        self._refuse(path)
        return super().open(path, create=create, writable=writable)

    def list_directory(self, path: str) -> list[str]:
        self._refuse(path)
        try:
            return super().list_directory(path)
        except NotADirectoryError as error:
            if self.plain_errors:
                raise OSError("the store has refused the request") from error
            raise


@pytest.fixture
def fs() -> Refusing:
    found = Refusing(simulated().rng)
    for node in NODES:
        write_replica(found, node)
    return found


@pytest.mark.parametrize("error", ERRORS)
def test_a_replica_whose_directory_cannot_be_listed_is_told_as_unread(
    fs: Refusing, error: int
) -> None:
    fs.error, fs.refused = error, REFUSED
    found = find_replicas(fs, "/data")
    assert found == [f"/data/{GROUP}/{node}" for node in NODES]
    told = verify_replicas(fs, found).findings
    assert exit_code(told) == EXIT_UNREAD
    assert any(each.path.startswith(REFUSED) for each in told)


@pytest.mark.parametrize("plain_errors", [False, True])
def test_a_file_beside_replicas_is_none_however_a_store_refuses_to_list_it(
    fs: Refusing, plain_errors: bool
) -> None:
    fs.plain_errors = plain_errors
    fs.open(f"/data/{GROUP}/README", create=True).close()
    assert find_replicas(fs, "/data") == [f"/data/{GROUP}/{node}" for node in NODES]
