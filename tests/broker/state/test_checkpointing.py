"""Derived files that cannot be written: a full disk is waited for, anything else is an error."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.state.state_machine import BrokerCheckpointWork
from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DiskFullError
from store.index.key_index import KeyIndex


@pytest.mark.parametrize(("error", "raised"), [(errno.ENOSPC, DiskFullError), (errno.EIO, OSError)])
def test_only_a_full_disk_is_told_as_such(error: int, raised: type[Exception]) -> None:
    fs = SimulatedFileSystem(Random(1))
    keys = KeyIndex(fs, "/data/keyindex")
    keys.append(bytes(16))
    flush = keys.begin_flush()
    assert flush is not None
    fs.inject(Fault(1, error, operations=("pwrite",)))
    with pytest.raises(raised) as found:
        BrokerCheckpointWork(b"", [flush], lambda: None).flush()
    assert isinstance(found.value, DiskFullError) == (error == errno.ENOSPC)
    flush.run()
