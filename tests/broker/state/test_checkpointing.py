"""What a checkpoint of the broker writes, removes and says. A full disk is waited for; any other
failed write is an error."""

from __future__ import annotations

import errno
import re
from random import Random

import pytest

from broker.state.state_machine import BrokerCheckpointWork, BrokerStateMachine
from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DiskFullError
from store.index.key_index import KeyIndex
from store.message.batch import QUEUE_ROW
from store.state.machine_state import decode_machine_state


@pytest.mark.parametrize(("error", "raised"), [(errno.ENOSPC, DiskFullError), (errno.EIO, OSError)])
def test_only_a_full_disk_is_told_as_such(error: int, raised: type[Exception]) -> None:
    fs = SimulatedFileSystem(Random(1))
    keys = KeyIndex(fs, "/data/keyindex")
    keys.append(bytes(16))
    flush = keys.begin_flush()
    assert flush is not None
    fs.inject(Fault(1, error, operations=("pwrite",)))
    with pytest.raises(raised) as found:
        BrokerCheckpointWork(bytes, [flush], lambda: None).flush()
    assert isinstance(found.value, DiskFullError) == (error == errno.ENOSPC)
    flush.run()


class FewRows(BrokerStateMachine):
    """Files of four rows."""

    rows_per_file = 4


class Trimmed:
    """A machine with a queue of three files."""

    def __init__(self) -> None:
        self.fs = SimulatedFileSystem(Random(1))
        self.machine = FewRows.open(self.fs, "/data", 1 << 20)
        self.queue = self.machine._queues.get_or_create("orders", 0)
        self.queue.append(0, b"".join(QUEUE_ROW.pack(1000 + 10 * k, 100, 0) for k in range(9)))
        self.save()

    def save(self, *, saved: bool = True, first_offset: int = 0) -> list[str]:
        """A checkpoint, during which the first offset rises; returns the files of rows left."""
        work = self.machine.begin_checkpoint()
        self.machine._raise_first(self.queue, first_offset)
        work.flush()
        work.finish(saved=saved)
        return [path for path in self.fs.files() if re.search(r"orders.*\d{20}$", path)]


def test_files_go_with_the_second_checkpoint_that_does_not_need_them() -> None:
    trimmed = Trimmed()
    trimmed.machine._raise_first(trimmed.queue, 5)
    assert len(trimmed.save()) == 3
    assert len(trimmed.save()) == 2
    assert len(trimmed.save()) == 2


def test_a_checkpoint_that_is_not_saved_does_not_count() -> None:
    trimmed = Trimmed()
    trimmed.machine._raise_first(trimmed.queue, 5)
    assert len(trimmed.save(saved=False)) == 3
    assert len(trimmed.save(saved=False)) == 3
    assert len(trimmed.save()) == 3
    assert len(trimmed.save(saved=False)) == 3
    assert len(trimmed.save()) == 2


def test_what_is_trimmed_during_a_checkpoint_is_for_later_ones() -> None:
    trimmed = Trimmed()
    trimmed.machine._raise_first(trimmed.queue, 5)
    trimmed.save(first_offset=9)
    assert len(trimmed.save()) == 2
    assert len(trimmed.save()) == 1
    assert not trimmed.machine._trimmed


def test_the_state_is_that_of_the_beginning_whatever_is_applied_meanwhile() -> None:
    trimmed = Trimmed()
    begun = trimmed.machine.begin_checkpoint()
    again = trimmed.machine.begin_checkpoint()
    trimmed.queue.append(9, QUEUE_ROW.pack(2000, 100, 0))
    trimmed.machine.segment_times[0] = 5
    trimmed.machine.applied_end = 7
    trimmed.machine._raise_first(trimmed.queue, 3)
    assert decode_machine_state(begun.state) == decode_machine_state(again.state)
    assert decode_machine_state(begun.state).queues == [("orders", 0, 0, 9)]
